"""From the description of a run to its parts: data, model, method, optimisers and executor together."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints
from spreadout.data.columns import Dense, Lists, Sparse, total_bytes
from spreadout.data.dataset import FederatedDataset
from spreadout.data.label_counts import total_counts
from spreadout.data.splits import Splits
from spreadout.federated.aggregate import ServerOptimizers
from spreadout.federated.augment import Augment
from spreadout.federated.central import rounds_of
from spreadout.federated.claims import claim_cap
from spreadout.federated.executor import EXECUTORS, Executor, ExecutorOptions
from spreadout.federated.federation import ClientSettings, Federation, ServerSettings
from spreadout.federated.local import LocalTraining
from spreadout.federated.robust import Mean, RobustRule
from spreadout.federated.sampling import Selection
from spreadout.methods.base import Method
from spreadout.models.build import UNFIT_LAYERS, DataShape, unmoved_buffers
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.models.nn.images import ImageEncoder
from spreadout.runs.cohort_statistics import refuse_cohort_statistics
from spreadout.runs.misfits import refuse_misfits, refuse_unfit_optimizers, unfit_for_robust_rules
from spreadout.runs.unprotected import refuse_empty_budget, refuse_own_scaling
from spreadout.runtime import distributed

DENSE_UP_TO = 1 << 30
AMPERE = 8  # the first kind of CUDA device that computes in bf16; older ones imitate it, slowly
GPU_SHARE = 8  # one part in so many of a GPU's memory is for a chunk: others may be at work on it


def build_federation(
    experiment: Experiment,
    splits: Splits,
    device: torch.device,
    encoder: nn.Module | None = None,
    method: Method | None = None,
    *,
    clients_known: bool = True,
) -> Federation:
    """All fixed parts of a run, from its description and its data; own parts take precedence.

    clients_known: whether the data has all clients of the run, as that of a node or a server has not.
    """
    e = experiment
    method = method or e.method
    refuse_misfits(e, splits, method)
    feature_rows = encoder is None and e.model.features_are_rows
    data = _train_data(e, splits.train, method, feature_rows=feature_rows)
    per_round, selection = cohort_size(e, data, method)
    model = _model(e, data, method, encoder).on(device)
    if encoder is not None:
        refuse_own_scaling(e, method, encoder)
    optimizers = ServerOptimizers(
        e.server.optimizer_for(),
        {name: e.server.optimizer_for(name) for name in model.tables},
        e.server.weight_decay,
    )
    refuse_unfit_optimizers(e, method)
    by_example = e.privacy is not None and e.privacy.model == "example"
    memory = memory_of(e, model, device)
    federation = Federation(
        data=data,
        model=model,
        method=method,
        clients=ClientSettings(
            schedule=replace(e.clients.schedule, poisson=by_example),
            training=_local_training(e, model, method),
            decay=e.clients.lr_decay,
            row_warmup=e.clients.row_warmup,
            augment=_augment(e, data),
            drift=e.clients.drift,
            max_norm=e.clients.max_update_norm,
            privacy=e.privacy,
            requests_seen=e.clients.request_features == "seen",
        ),
        server=ServerSettings(
            optimizers,
            selection,
            per_round,
            _robust(e, method),
            memory,
            cap_of(e, method, data.sizes, 1.0),
            decay=e.server.lr_decay,
        ),
        executor=_executor(e, device, memory),
        device=device,
        seed=e.seed,
        rounds=e.rounds,
        bf16=uses_bf16(e, model, device),
        activations=model.activations(_example_shape(data)),
        class_names=splits.class_names,
        validated=bool(splits.validation) and e.eval.uses_validation,
    )
    refuse_cohort_statistics(federation)
    if clients_known:
        refuse_spent_at_once(federation)
    if not feature_rows and not federation.executor.keeps_sparse(federation):
        data = _densified(data)
    return replace(federation, data=data.to(device) if _fits(data, device) else data)


def refuse_spent_at_once(federation: Federation) -> None:
    """A budget for sums over clients that the first round would exceed."""
    f, privacy = federation, federation.clients.privacy
    if f.noises_sums and privacy is not None and privacy.epsilon is not None:
        one = rounds_of(f).at_most(privacy.noise, 1, privacy.delta)
        if one > privacy.epsilon:  # by the quick accountant; what is the closest?
            one = rounds_of(f).spent(privacy.noise, 1, privacy.delta).epsilon
        refuse_empty_budget(privacy, one)


def cap_of(e: Experiment, method: Method, sizes: Ints, quantile: float) -> int | None:
    """Examples that a client may count for: one each, where nobody is to know how many it has.

    quantile: unless the config says otherwise.
    """
    if e.privacy is not None or method.hides_sizes:
        return 1
    return claim_cap(e.clients.schedule.usable(sizes), e.server.claim_quantile or quantile)


def _train_data(
    e: Experiment, data: FederatedDataset, method: Method, *, feature_rows: bool
) -> FederatedDataset:
    """The training data in the form that the method and the model need.

    feature_rows: whether the model looks its features up as rows of a table.
    """
    if e.clients.request_features == "seen" and not feature_rows:
        raise UserError(
            'clients.request_features = "seen": is for model.encoder = "lookup", whose features are rows'
        )
    if feature_rows:
        data = _with_feature_rows(data, e.model.encoder)
    if not method.has_class_table:
        data = _without_rows(data)
    if method.needs_popularity and data.clients:
        data = replace(data, public_popularity=data.popularity)
    if method.needs_counts == "all" and data.clients and data.public_counts is None:
        most = cap_of(e, method, data.sizes, 1.0)
        data = replace(data, public_counts=total_counts(data.label_counts, data.classes, most))
    return data.pooled() if method.is_centralized else data


def _local_training(e: Experiment, model: EmbeddingModel, method: Method) -> LocalTraining:
    """How clients train: the rates of the dense part and of each table, and what stays fixed."""
    c = e.clients
    return LocalTraining(
        dense=c.optimizer_for(),
        rows={
            name: c.optimizer_for(c.input_lr if name == "inputs" else c.row_lr) for name in model.tables
        },
        sphere=model.sphere,
        fixed=method.fixed_tables(),
        pull=0.0 if c.drift is None else c.drift.pull,
    )


def memory_of(e: Experiment, model: EmbeddingModel, device: torch.device) -> int:
    """Bytes that a chunk of clients may take; a step on images in many chunks leaves a GPU idle."""
    if e.run.memory_gb != "auto":
        return int(e.run.memory_gb * 2**30)
    if device.type != "cuda" or not isinstance(model.encoder, ImageEncoder):
        return 1 << 30
    return max(1 << 30, torch.cuda.get_device_properties(device).total_memory // GPU_SHARE)


def uses_bf16(e: Experiment, model: EmbeddingModel, device: torch.device) -> bool:
    """Whether encoders compute in bf16: by itself on images, where a GPU is made for it."""
    if e.run.precision != "auto":
        return e.run.precision == "bf16"
    if device.type != "cuda" or e.privacy is not None or not isinstance(model.encoder, ImageEncoder):
        return False
    return torch.version.hip is not None or torch.cuda.get_device_properties(device).major >= AMPERE


def _executor(e: Experiment, device: torch.device, memory: int) -> Executor:
    """The config's executor; with several processes, each trains its part of the cohort."""
    alone = distributed.size() == 1  # prefetching stages whole cohorts
    options = ExecutorOptions(device, memory, graphs=e.run.graphs, prefetch=alone)
    executor = EXECUTORS[e.run.executor].from_options(options)
    return executor if alone else distributed.Distributed(executor)


def _robust(e: Experiment, method: Method) -> RobustRule | None:
    """The config's robust rule; None where updates are merely averaged."""
    rule = e.server.robust
    if rule is None or isinstance(rule, Mean):
        return None
    if method.is_centralized:
        raise UserError(
            f"server.robust = {rule.name!r}: method.name = {method.name!r} pools the data, "
            "and nobody sends updates"
        )
    if problem := unfit_for_robust_rules(e) or method.unguarded_setup:
        raise UserError(f"server.robust = {rule.name!r}: {problem}")
    return rule


def _augment(e: Experiment, data: FederatedDataset) -> Augment:
    c = e.clients
    moved = c.image_shift or c.image_flip
    x = data.columns.get("x")
    if moved and not (isinstance(x, Dense) and x.values.dim() == 4):
        key = "image_shift" if c.image_shift else "image_flip"
        raise UserError(f"clients.{key}: the inputs are no images")
    if (
        c.image_shift
        and isinstance(x, Dense)
        and c.image_shift > (most := min(x.values.shape[-2:]) // 2)
    ):
        high, wide = x.values.shape[-2:]
        raise UserError(
            f"clients.image_shift = {c.image_shift}: images have {high} x {wide} pixels; take {most} at "
            "most, half of the shorter side"
        )
    standard = e.model.input_scaling != "none"
    return Augment(c.input_noise, c.input_dropout, standard, c.image_shift, c.image_flip)


def _example_shape(data: FederatedDataset) -> tuple[int, ...] | None:
    """Of the input x, where there is one and it is dense."""
    x = data.columns.get("x")
    return tuple(x.values.shape[1:]) if isinstance(x, Dense) else None


def cohort_size(e: Experiment, data: FederatedDataset, method: Method) -> tuple[int, Selection]:
    """How many clients a round has, and how they are chosen."""
    per_round, selection = e.clients.per_round, e.clients.selection
    busy = selection == "nonempty" and not method.is_centralized
    there = int((e.clients.schedule.usable(data.sizes) > 0).sum()) if busy else data.clients
    if method.is_centralized or per_round == "all":
        return there, "nonempty" if busy else "full"
    if per_round > there and "clients.per_round" in (e.chosen or []):
        return there, selection  # chosen for other data: of a deployment's rehearsal, say
    if per_round > there:
        raise UserError(
            f"clients.per_round = {per_round}: there are only {there} clients"
            f'{" with examples to train on" if busy else ""}; take fewer, or "all"'
        )
    return per_round, selection


def _model(
    e: Experiment, data: FederatedDataset, method: Method, encoder: nn.Module | None
) -> EmbeddingModel:
    """The config's model, or one around the user's own encoder."""
    if encoder is None:
        model = method.build_model(e.model, DataShape.of(data), e.seed)
    elif not method.has_class_table:
        raise UserError(f"encoder: method.name = {method.name!r} trains a network of its own")
    else:
        module, dim = _own_encoder(data, encoder)
        model = EmbeddingModel(module, {"classes": TableShape(data.classes, dim)})
    clash = sorted(set(model.tables) & {name for name, _ in model.encoder.named_parameters()})
    if clash:
        raise UserError(f"encoder: has a parameter named {clash[0]!r} like a table; rename it")
    unknown = set(e.server.tables) - set(model.tables)
    if unknown:
        known = ", ".join(model.tables)
        raise UserError(f"server.tables.{min(unknown)}: no such table; known: {known}")
    return model


def _without_rows(data: FederatedDataset) -> FederatedDataset:
    """Labels that name no rows, side by side in one width: there is no table of classes."""
    y = data.columns["y"]
    if isinstance(y, Lists):
        y = replace(y, width=max(y.longest, 1))
    return replace(data, row_columns={}, columns={**data.columns, "y": y})


def _with_feature_rows(data: FederatedDataset, encoder: str) -> FederatedDataset:
    """Sparse features as names of rows: a client requests the rows of the features it has."""
    if not isinstance(data.columns.get("x"), Sparse):
        raise UserError(
            f'model.encoder = "{encoder}": takes sparse features, and the data has none; take "mlp"'
        )
    return replace(data, row_columns={**data.row_columns, "x": "inputs"})


def _densified(data: FederatedDataset) -> FederatedDataset:
    """Sparse features as dense rows, made once where they fit and batch by batch where they do not."""
    columns = dict(data.columns)
    for name, column in data.columns.items():
        if isinstance(column, Sparse) and column.count * column.example_bytes <= DENSE_UP_TO:
            columns[name] = column.dense()
    return replace(data, columns=columns)


def _fits(data: FederatedDataset, device: torch.device) -> bool:
    """Whether the data may live on the device; if not, cohorts are gathered on the host."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return total_bytes(data.columns.values()) < free // 2


def _own_encoder(data: FederatedDataset, given: nn.Module) -> tuple[nn.Module, int]:
    """A copy of the user's own encoder, and its output's width."""
    if "x" not in data.columns:
        raise UserError("encoder: takes the input x, and the data has histories")
    x = data.columns["x"]
    some = torch.zeros(min(1, len(x)), dtype=torch.int64)
    one = x.take(some).cpu()
    if not len(one):  # a deployment's server has none: one of the same form
        one = one.new_zeros(1, *one.shape[1:])
    module = copy.deepcopy(given).cpu().eval()
    for name, layer in module.named_modules():
        if isinstance(layer, UNFIT_LAYERS):
            raise UserError(
                f"encoder: {name or 'it'} is a {type(layer).__name__}, whose batch statistics or random "
                "draws do not average over clients; use GroupNorm, and clients.input_dropout"
            )
    try:
        with torch.no_grad(), unmoved_buffers("encoder", module):
            given_back = module(one)
            module(torch.cat([one, one]))  # statistics of a batch need two
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"encoder: fails on an input of shape {tuple(one.shape)} ({reason})") from None
    if not isinstance(given_back, torch.Tensor):
        kind = type(given_back).__name__
        raise UserError(f"encoder: gives a {kind}; it must give one tensor, (1, dim) for one example")
    shape = given_back.shape
    if len(shape) != 2:
        raise UserError(f"encoder: gives shape {tuple(shape)} for one example; it must give (1, dim)")
    return module, int(shape[1])


def pick_device(name: str) -> torch.device:
    """`auto` takes CUDA where there is one; `cuda` where there is none is an error."""
    if name not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {name}: unknown; known: auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device is available here; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name, torch.cuda.current_device()) if name == "cuda" else torch.device(name)
