"""The validated description of a run: TOML in, typed and frozen value out, and back again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import tomli_w
from pydantic import (
    Field,
    PositiveFloat,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spreadout import runtime  # noqa: F401  (its executors register themselves)
from spreadout.config.effect import without_inherited
from spreadout.config.keys import without_auto
from spreadout.config.private import with_equal_weights
from spreadout.config.unknown_keys import elsewhere
from spreadout.config.values import (
    changes_of,
    imports_of,
    naming_no_other,
    overlay,
    read_toml,
    rechosen,
    refuse_deep,
    reopened,
)
from spreadout.core.errors import UserError
from spreadout.core.explained import explain
from spreadout.core.optimizers import Optimizer
from spreadout.core.registry import IMPORTED, Section, import_modules
from spreadout.data.load import DataConfig
from spreadout.evaluation.config import EvalConfig
from spreadout.federated.drift import AnyDriftCorrection
from spreadout.federated.executor import EXECUTORS
from spreadout.federated.robust import AnyRobustRule
from spreadout.federated.sampling import Selection
from spreadout.federated.schedule import Decay, Schedule
from spreadout.methods import AnyMethod, FedAwS
from spreadout.models.build import ModelConfig
from spreadout.privacy.mechanism import GaussianMechanism


class ClientsConfig(Optimizer):
    """`[clients]`: who takes part, and how each client trains."""

    lr: float = Field(0.1, gt=0)
    row_lr: float | None = Field(None, gt=0)  # rate of the class rows; None: lr
    input_lr: float | None = Field(None, gt=0)  # rate of the feature rows of a lookup; None: lr
    request_features: Literal["own", "seen"] = "own"  # of a lookup: of all its examples, or the round's
    lr_decay: Decay = "none"  # of all rates, to zero over the run
    row_warmup: int = Field(0, ge=0)  # first rounds over which the rate of class rows rises to row_lr
    per_round: int | Literal["all"] = "all"
    selection: Selection = "uniform"
    local_steps: int | None = Field(None, ge=1)  # give this or local_epochs; default: one epoch
    local_epochs: int | None = Field(None, ge=1)
    batch: int | Literal["full"] = 32
    drop_remainder: bool = False
    max_examples: int | None = Field(None, ge=1)
    shuffle: bool = True
    input_noise: float = Field(0.0, ge=0)  # deviation of Gaussian noise on inputs while training
    input_dropout: float = Field(0.0, ge=0, lt=1)  # share of input values dropped while training
    image_shift: int = Field(0, ge=0)  # pixels images move by, at most, while training
    image_flip: bool = False  # whether they are mirrored at random
    max_update_norm: float | None = Field(None, gt=0)  # refuse longer updates
    drift: AnyDriftCorrection | None = None  # correction of client drift: fedprox, scaffold, feddyn

    @field_validator("per_round", "batch")
    @classmethod
    def _at_least_one(cls, count: int | str) -> int | str:
        if isinstance(count, int) and count < 1:
            raise ValueError("must be at least 1")
        return count

    @model_validator(mode="after")
    def _one_length(self) -> ClientsConfig:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError("give local_steps or local_epochs, not both")
        if self.optimizer == "dog":
            raise ValueError('optimizer = "dog" is for the server; take sgd, adam, adagrad or yogi')
        return self

    @property
    def schedule(self) -> Schedule:
        epochs = None if self.local_steps is not None else self.local_epochs or 1
        batch = None if self.batch == "full" else self.batch
        return Schedule(
            self.local_steps, epochs, batch, self.drop_remainder, self.max_examples, self.shuffle
        )

    def optimizer_for(self, lr: float | None = None) -> Optimizer:
        fields = {name: getattr(self, name) for name in Optimizer.model_fields}
        return Optimizer(**{**fields, "lr": lr or self.lr})


class ServerConfig(Optimizer):
    """`[server]`: the optimiser of the dense part; `[server.tables.NAME]` for a table's own."""

    read_if: ClassVar = {**Optimizer.read_if, "weight_decay": ({"optimizer": ("sgd",)},)}

    tables: dict[str, Optimizer] = Field(default_factory=dict)
    # A client counts for no more examples than this share of the clients claim; 1: for all it claims.
    # None: 2/3 in a deployment, where a claim is the client's own word, and 1 in a simulation.
    claim_quantile: float | None = Field(None, gt=0, le=1)
    lr_decay: Decay = "none"  # of the server's rates, to zero over the run
    # sgd: so much of the encoder's matrices and kernels is added to the gradient, not of class rows. The
    # gradient is what clients moved, so with clients.lr = 1 this is what torch.optim.SGD has.
    weight_decay: float = Field(0.0, ge=0)
    robust: AnyRobustRule | None = None  # None: norm_clipping in a deployment, mean in a simulation

    def optimizer_for(self, table: str | None = None) -> Optimizer:
        if table in self.tables:
            return self.tables[table]
        return Optimizer(**{name: getattr(self, name) for name in Optimizer.model_fields})


class RunConfig(Section):
    """`[run]`: where and how rounds are computed; no effect on what they mean."""

    executor: str = "simulator"  # simulator, sequential, or one of your own
    # Budget of the simulator for one chunk of clients; auto: 1, for images an eighth of a GPU if more.
    memory_gb: PositiveFloat | Literal["auto"] = "auto"
    # auto: bf16 for encoders of images on a GPU, not under [privacy]; float32 elsewhere.
    precision: Literal["auto", "float32", "bf16"] = "auto"
    graphs: bool = True  # replay local steps as CUDA graphs where that can be done
    shard_mb: float = Field(256.0, ge=0)  # larger class tables are shared out among processes
    checkpoint_every: int | None = Field(None, ge=1)  # rounds; None: at every evaluation
    log_requests: bool = False  # write requests.jsonl: the class rows each client requests, for `audit`
    track: list[Literal["mlflow", "tensorboard", "wandb"]] = Field(default_factory=list)  # who is told
    track_project: str = Field("spreadout", min_length=1)  # under which name wandb and mlflow keep it

    @field_validator("executor")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in EXECUTORS:
            raise PydanticCustomError("literal_error", "unknown", {"expected": ", ".join(EXECUTORS)})
        return name


class DeployConfig(Section):
    """`[deploy]`: how rounds run on real clients over Flower; a simulation does not look at it."""

    nodes: int = Field(1, ge=1)  # training begins when so many nodes are there …
    wait: PositiveFloat = 120.0  # … or fails after so many seconds
    timeout: PositiveFloat = 120.0  # seconds a round waits for its clients' answers
    max_rows: int | None = Field(None, ge=1)  # of a table, that a client may request in a round
    max_clients: int = Field(1000, ge=1)  # that a node may answer for
    max_hello_mb: PositiveFloat = 256.0  # of a node's first answer; the others follow from what is asked
    roster: Path | None = None  # which node may answer for a client, and which classes are its own
    takeover: bool = False  # whether another node may answer for a client whose own node is gone

    @field_validator("roster")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()


class Experiment(Section):
    """A complete run. `Experiment.load` reads one; `to_toml` writes it back, complete.

    >>> import spreadout as so
    >>> experiment = so.Experiment.load("digits-fedaws", ["clients.lr=0.2", "rounds=5"])
    >>> experiment.method.name, experiment.clients.lr
    ('fedaws', 0.2)
    >>> so.Experiment.of({"rounds": 5, "method": {"name": "fedavg"}}).method.scale
    20.0
    """

    name: str = Field("run", pattern=r"^[A-Za-z0-9._-]+$")
    imports: list[str] = Field(
        default_factory=list
    )  # modules of your own that register what the config names
    seed: int = Field(0, ge=0)
    rounds: int = Field(100, ge=1)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    method: AnyMethod = FedAwS()
    clients: ClientsConfig = ClientsConfig()
    server: ServerConfig = ServerConfig()
    eval: EvalConfig = EvalConfig()
    privacy: GaussianMechanism | None = None
    run: RunConfig = RunConfig()
    deploy: DeployConfig = DeployConfig()
    # Parts that the run was given in Python in place of those that this config names.
    own: list[Literal["encoder", "method"]] = Field(default_factory=list)
    # Keys that were chosen for the data (`sound.py`); a config that lists them is complete.
    chosen: list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_imports(cls, values: Any) -> Any:
        """What a config names may be registered by modules of its own: those come first."""
        if not isinstance(values, Mapping):
            return values
        values = without_auto(values)
        named = imports_of(values)
        if values.get("imports", named) != named:
            return values  # the field's own check reports it
        import_modules(named)
        every = [*named, *(name for name in IMPORTED if name not in named)]
        values = with_equal_weights(values)
        return {**values, "imports": every} if every else values

    @model_validator(mode="after")
    def _splits(self) -> Experiment:
        given = self.chosen is not None or "validation_fraction" in self.data.model_fields_set
        if self.eval.split == "validation" and given and not self.data.validation_fraction:
            raise ValueError('eval.split = "validation" needs data.validation_fraction above 0')
        return self

    @classmethod
    def _explained(cls, error: ValidationError, values: Mapping[str, Any]) -> str:
        return explain(error, "experiment", cls, values, elsewhere=elsewhere)

    @classmethod
    def load(
        cls,
        source: str | Path,
        overrides: Iterable[str] = (),
        replaced: Mapping[str, Any] | None = None,
    ) -> Experiment:
        """Read a TOML file, or a preset by name, with `section.key=value` overrides on top.

        A preset is tuned for its data and its method: if another is named, the rest is chosen anew.
        replaced: sections whose place parts given in Python take, which are others too.
        """
        values, changes = read_toml(source), list(overrides)
        if not Path(source).exists():
            values = dict(rechosen(values, {**changes_of(changes), **(replaced or {})}))
        return cls.of(naming_no_other(values, changes_of(changes)), str(source), changes)

    @classmethod
    def of(
        cls, values: Mapping[str, Any], origin: str = "experiment", overrides: Iterable[str] = ()
    ) -> Experiment:
        """Validate plain values; `origin` names them in errors."""
        if not isinstance(values, Mapping):
            told = "; Experiment.load reads a file or a preset" if isinstance(values, str | Path) else ""
            raise UserError(f"{origin}: is a {type(values).__name__}, not sections with values{told}")
        if "variants" in values:
            raise UserError(f"{origin}: is a suite; run it with `spreadout compare {origin}`")
        refuse_deep(values, origin)
        changes = changes_of(overrides)
        for given in (values, changes):  # first: which keys go together is known to the parts they name
            import_modules(imports_of(given))
        if "method" not in values and isinstance(changes.get("method"), Mapping):
            default = cls.model_fields["method"].get_default(call_default_factory=True)
            values = {**values, "method": {"name": default.name}}  # whose keys are meant
        merged = overlay(reopened(values, changes), changes)
        if changes:
            merged = without_inherited(merged, changes, cls.model_validate)
        try:
            return cls.model_validate(merged)
        except ValidationError as error:
            raise UserError(explain(error, origin, cls, merged, changes, elsewhere)) from None

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def as_experiment(given: Experiment | str | Path | Mapping[str, Any]) -> Experiment:
    """An experiment out of a file, a preset's name, or plain values."""
    if isinstance(given, Experiment):
        return given
    if isinstance(given, str | Path):
        return Experiment.load(given)
    if isinstance(given, Mapping):
        return Experiment.of(given)
    raise UserError(f"experiment: is a {type(given).__name__}; give a config file, a preset or values")
