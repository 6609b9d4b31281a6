"""What follows from the data and the method, one decision a function.

Each returns values of keys by their dotted names; `sound.py` sets those that the user has left open. A
decision looks at shapes, sizes and labels, of features only at how many are 0, and of images at some
thousands; it costs no more than one pass over them. Where clients hide them it looks at what is public
alone (`known.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from spreadout.config import known
from spreadout.config.experiment import Experiment
from spreadout.config.keys import is_open, with_value
from spreadout.config.known import hides_sizes
from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.load import training_size
from spreadout.data.partitions import ByLabel, ByUser, FrequentClasses, Iid, Partition
from spreadout.data.sources.base import RawDataset
from spreadout.data.splits import Splits
from spreadout.evaluation.metrics import find_metric
from spreadout.methods import DualEncoder, FedMLH, FedSS
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.fedss import NEGATIVES
from spreadout.methods.spreadout_objective import MANY_CLASSES, MINING
from spreadout.models.build import DataShape

FEW = 1.5  # classes of a client in the mean, up to which it is one that holds a single class
INSTANCES_EACH = 50  # of the training part, for each of the clients that get theirs by chance
MANY_FEATURES = 16_384  # of sparse text: from here on a client looks up the few rows it has
EVERYBODY = 200  # up to so many clients all take part in every round
SHARE, CROWD = 0.05, 1000  # of more clients this share does, if that is more, and so many at most
VISITS = 100  # times a client should take part in a run …
LONGEST = 1000  # … as far as so many rounds allow
SHORTEST, ONE_STEP_VISITS = 300, 50  # the same where a client takes one step a round …
EPOCHS, TABLE_EPOCHS = 20, 60  # and times an example should be seen: numbers are learned slowly
LARGE_CLIENT = 1000  # examples in the mean, from which steps of a larger batch pay
PICTURES_A_STEP = 1024  # of an encoder of images: many steps teach it more than large ones
FEW_PICTURES = 4  # of a client in such a step at least: many clients teach it more than large batches
FEWEST = 8  # clients in such a step, however large their batches are
PICTURES_LONGEST, PICTURE_EPOCHS = 2000, 100  # so it has more rounds, and sees examples more often
MOVED_SHORTEST, MOVED_LONGEST = 1000, 4000  # where they are moved, there is more to learn of them
SHIFT = 8  # a picture moves by this part of its side at most
ENOUGH = 4000  # instances, from which on a softmax over features is not soon overfitted
NARROW = 32  # features, below which each of them counts
WORDS = 256  # features, mostly 0, from which on they are text: a line through them is hard to beat
SHORT = 100  # rounds, below which a run is not stopped early
SKEWED = 3  # times the examples of other classes in the mean: one with so many hides what they score
LONG_HISTORY = 256  # examples of a user in its one step: most users have fewer


def division(experiment: Experiment, found: RawDataset) -> dict[str, Any]:
    """Who holds what: a client for every user where the data knows them, else for every label.

    A method that trains on whole label sets needs clients that hold them.
    """
    sets = _has_sets(found.train.labels)
    chosen: Partition = ByLabel()
    if "partition" in experiment.data.model_fields_set:
        chosen = experiment.data.partition
    elif found.train.user is not None:
        chosen = ByUser()
    elif experiment.method.label_sets and sets and experiment.method.is_centralized:
        chosen = Iid(clients=1)
    elif experiment.method.label_sets and sets and hides_sizes(experiment):
        chosen = FrequentClasses()
    elif experiment.method.label_sets and sets:
        most = len(torch.unique(found.train.labels.values))
        plain = FrequentClasses()
        chosen = FrequentClasses(
            clients=min(plain.clients, len(found.train)), frequent=min(plain.frequent, most)
        )
    targets: str = chosen.default_targets
    if experiment.method.label_sets and experiment.method.is_centralized:
        # A partition that is set is meant for the other arms of a comparison.
        targets = "all" if is_open(experiment, "data.partition") else "pooled"
    values: dict[str, Any] = {"data.partition": chosen, **_judged_by(experiment, found)}
    if sets:
        values["data.targets"] = targets
    if getattr(chosen, "clients", 0) is None:
        values["data.partition.clients"] = _clients_dealt_to(experiment, found, values)
    return values


def _clients_dealt_to(experiment: Experiment, found: RawDataset, values: Mapping[str, Any]) -> int:
    """As many as by label, while each gets some tens of examples of those that are not held out."""
    if hides_sizes(experiment):
        return max(2, found.classes)
    held_out = "data.validation_fraction"
    if held_out in values and is_open(experiment, held_out):
        experiment = with_value(experiment, held_out, values[held_out])
    classes = len(torch.unique(found.train.labels.values))
    trained_on = training_size(experiment.data, found, experiment.seed)
    return max(2, min(classes, trained_on // INSTANCES_EACH))


def _judged_by(experiment: Experiment, found: RawDataset) -> dict[str, Any]:
    """Test classes that are never trained on can be retrieved by their embeddings alone.

    A method without a table of classes has none: it is judged on trained classes, by a validation part.
    """
    new = found.test is not None and _never_trained(found.test.labels, found.classes)
    if not new and "history" not in found.train.columns:
        if experiment.privacy is not None and not experiment.eval.uses_validation:
            return {}  # a private model has no prior, and nothing else asks for them
        # The weight of a prior is chosen by it. The same for all methods, so that arms of a comparison
        # train on the same examples.
        return {"data.validation_fraction": 0.1}
    if experiment.eval.split == "validation":
        return {"data.validation_fraction": 0.1}
    if experiment.method.has_class_table or not new:
        return {}
    if experiment.data.validation_fraction or is_open(experiment, "data.validation_fraction"):
        return {"data.validation_fraction": 0.1, "eval.split": "validation"}
    return {}


def encoder(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """The kind of network that can read the inputs; of several, the first that uses all keys set."""
    fitting = _encoders(experiment, splits)
    for name in fitting:
        if not experiment.model.idle(name):
            return {"model.encoder": name}
    if "encoder" in experiment.model.model_fields_set:
        return {}
    raise UserError(experiment.model.idle(fitting[0]))


def _encoders(experiment: Experiment, splits: Splits) -> list[str]:
    data = splits.train
    shape = DataShape.of(data)
    if not experiment.method.has_class_table:
        return ["mlp"]  # it builds a network of its own, which has the keys of this one
    if shape.window is not None:
        return ["attention", "mean"]  # the order of a history says more than its mean
    if isinstance(data.columns.get("x"), Sparse):
        many = (shape.features or 0) >= MANY_FEATURES and not _hidden_from_server(experiment)
        return ["lookup", "mlp"] if many else ["mlp", "lookup"]
    if shape.image is not None and shape.image[1] == shape.image[2]:
        return ["convnet", "mlp"]
    return ["mlp"]


def _hidden_from_server(experiment: Experiment) -> bool:
    """Whether noise is to hide from the server what clients have: a lookup would name their features."""
    return experiment.privacy is not None and not experiment.privacy.on_the_server


def scaling(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Numbers of any scale are brought to one: not images, whose scale is known, nor counts of words.

    Where most values are 0, what is not 0 says the most, and a word seen once would count the most.
    Roots of long tails gained nothing in the mean of real tables.
    """
    x = splits.train.columns.get("x")
    unfit = experiment.model.encoder != "mlp" or hides_sizes(experiment)
    if unfit or x is None or not len(x):
        return {}
    numbers = DataShape.of(splits.train).image is None and splits.train.has_numbers
    return {"model.input_scaling": "standard"} if numbers else {}


def objective(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Losses that say something on any client, and pairs of classes that can be gone through.

    Batch softmax compares a client's items with each other only, and a cosine without a temperature can
    hardly prefer one of many (docs/dual_encoder.md). A sum over all pairs of classes grows with C².
    """
    method, found = experiment.method, dict[str, Any]()
    if isinstance(method, DualEncoder):
        if is_open(experiment, "method.loss_form"):
            found["method.loss_form"] = "sampled_softmax"
        form = found.get("method.loss_form", method.loss_form)
        if form in ("sampled_softmax", "global_softmax"):
            found["method.scale"] = 10.0
    elif "scale" in type(method).model_fields:
        found["method.scale"] = 10.0  # of a softmax over cosines
    if isinstance(method, Spreadout) and splits.train.classes > MANY_CLASSES:
        found["method.spreadout_form"] = "topk"
    return found


def within_classes(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Counts of classes whose plain default is more than there are."""
    there = splits.train.class_count
    method, found = experiment.method, dict[str, Any]()
    if isinstance(method, Spreadout) and method.spreadout_form in MINING:
        # Near pairs are a small part of all: with nearly all of them Eq. 8 has no minimum.
        found["method.k"] = min(type(method).model_fields["k"].default, max(1, there // 4))
    if isinstance(method, FedSS) and method.row_access == "sample":
        # With more, a request is for nearly all rows, and that is the full softmax.
        found["method.negatives"] = min(NEGATIVES, max(1, there // 2))
    if isinstance(method, FedMLH):
        found["method.buckets"] = min(type(method).model_fields["buckets"].default, max(2, there // 2))
    return found


def augmentation(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Photographs are shifted and mirrored: images of classes in which no side is seen.

    Signs and letters are not shifted either: framed alike, they lost by it in short runs. Where sizes
    are hidden, what images show is not looked at: they stay as they are.
    """
    shape, data = DataShape.of(splits.train), splits.train
    if shape.image is None or not sees_pictures(experiment, splits) or hides_sizes(experiment):
        return {}
    mirrored = experiment.clients.image_flip
    if is_open(experiment, "clients.image_flip"):
        mirrored = data.may_be_shifted and data.may_be_mirrored
    found: dict[str, Any] = {"clients.image_flip": mirrored}
    if is_open(experiment, "clients.image_shift"):
        shifted = mirrored and data.may_be_shifted  # also where the user says to mirror
        found["clients.image_shift"] = min(shape.image[1:]) // SHIFT if shifted else 0
    return found


def cohort(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """All clients while they are few; nobody without examples, whose update would be refused."""
    sizes = known.sizes(experiment, splits)
    if not hides_sizes(experiment):
        sizes = experiment.clients.schedule.usable(sizes)
    busy = int((sizes > 0).sum())
    some = everybody = EVERYBODY
    if one_step(experiment, splits) and not experiment.method.takes_histories:
        some = int(np.clip(SHARE * busy, EVERYBODY, CROWD))
        if sees_pictures(experiment, splits):
            some = _picture_clients(experiment, splits)
            # A class that is left out of a step costs more than a larger step.
            everybody = 2 * some if _one_step_on_pictures(experiment, splits) else some
    taking = "all" if busy <= everybody else some
    found: dict[str, Any] = {"clients.per_round": taking}
    alike = experiment.method.weighting == "uniform" and not hides_sizes(experiment)
    if not is_open(experiment, "clients.per_round"):
        taking = experiment.clients.per_round
    drawn = taking != "all" and int(taking) < busy
    if drawn and alike and not experiment.method.takes_histories:
        # Drawn by their size, clients count alike and examples too: the classes that carry most labels
        # are not lost among the many that carry few.
        found["clients.selection"] = "weighted"
    elif 0 < busy < len(sizes):
        found["clients.selection"] = "nonempty"
    return found


def _picture_clients(experiment: Experiment, splits: Splits) -> int:
    """Clients whose batches make up a step on images, also where the batch is set."""
    batch = experiment.clients.batch
    if is_open(experiment, "clients.batch"):
        batch = _batch(experiment, splits)
    elif batch == "full":
        sizes = known.sizes(experiment, splits)
        batch = int(sizes.sum()) // max(int((sizes > 0).sum()), 1)
    return max(FEWEST, PICTURES_A_STEP // max(batch, 1))


def one_step(experiment: Experiment, splits: Splits) -> bool:
    """Whether clients take one local step: more would fit what one client has and nothing else."""
    if experiment.method.is_centralized:
        return False
    return experiment.method.has_class_table or _has_one_class_each(experiment, splits.train)


def _has_one_class_each(experiment: Experiment, data: FederatedDataset) -> bool:
    """Whether clients mostly hold one class only; where that is hidden, whether the config says so."""
    y, busy = data.columns["y"], int((data.sizes > 0).sum())
    if isinstance(y, Lists) or not busy:
        return False
    if hides_sizes(experiment):
        asked = experiment.data
        return "partition" in asked.model_fields_set and isinstance(asked.partition, ByLabel)
    owner = torch.repeat_interleave(torch.arange(data.clients), data.offsets.diff())
    held = torch.unique(owner * data.classes + y.take(torch.arange(data.examples)).cpu())
    return len(held) <= FEW * busy


def local_work(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Larger batches where a client, or the one place of all data, has many examples.

    The one step of a user is one over all that it did: how much that is differs from user to user.
    """
    if experiment.method.takes_histories and one_step(experiment, splits):
        return {"clients.batch": LONG_HISTORY}
    return {"clients.batch": _batch(experiment, splits)}


def _batch(experiment: Experiment, splits: Splits) -> int:
    sizes = known.sizes(experiment, splits)
    holders = 1 if experiment.method.is_centralized else max(int((sizes > 0).sum()), 1)
    if not _one_step_on_pictures(experiment, splits):
        return 128 if int(sizes.sum()) / holders > LARGE_CLIENT else 32
    least = FEW_PICTURES if holders * FEW_PICTURES > PICTURES_A_STEP else 2 * FEW_PICTURES
    asked = experiment.clients.per_round
    if not is_open(experiment, "clients.per_round") and asked != "all":
        holders = min(holders, asked)
    return int(np.clip(PICTURES_A_STEP // holders, least, 128))


def _one_step_on_pictures(experiment: Experiment, splits: Splits) -> bool:
    """Whether clients take one step on images, as they do unless the user says otherwise."""
    clients = experiment.clients
    more = clients.local_epochs is not None or clients.local_steps not in (None, 1)
    return sees_pictures(experiment, splits) and one_step(experiment, splits) and not more


def sees_pictures(experiment: Experiment, splits: Splits) -> bool:
    """Whether inputs are images, and the encoder one of those for images."""
    shape = DataShape.of(splits.train)
    return shape.image is not None and experiment.model.encoder not in ("mlp", "lookup")


def is_small(experiment: Experiment, splits: Splits) -> bool:
    """Whether features are of few instances; one with several labels is one, on however many clients."""
    x = splits.train.columns.get("x")
    if x is None or not x.count or sees_pictures(experiment, splits):
        return False
    if hides_sizes(experiment):
        return int(known.sizes(experiment, splits).sum()) < ENOUGH
    if x.index is None or len(x) < ENOUGH:
        return len(x) < ENOUGH
    there = torch.zeros(x.count, dtype=torch.bool).index_fill_(0, x.index.cpu(), True)
    return int(there.sum()) < ENOUGH


def is_table(experiment: Experiment, splits: Splits) -> bool:
    """Whether inputs are rows of numbers, or of a few columns: no images, and no words."""
    shape = DataShape.of(splits.train)
    if "x" not in splits.train.columns or shape.image is not None:
        return False
    return (shape.features or 0) < NARROW or known.has_numbers(experiment, splits)


def can_spare_features(experiment: Experiment, splits: Splits) -> bool:
    """Whether some may be dropped at random: of few columns none, nor of numbers in many rows."""
    if (DataShape.of(splits.train).features or 0) < NARROW:
        return False
    return is_small(experiment, splits) or not known.has_numbers(experiment, splits)


def is_text(experiment: Experiment, splits: Splits) -> bool:
    """Whether features are many and mostly 0, as words are."""
    shape, x = DataShape.of(splits.train), splits.train.columns.get("x")
    if x is None or shape.image is not None or (shape.features or 0) < WORDS:
        return False
    return not known.has_numbers(experiment, splits)


def has_rare_words(splits: Splits) -> bool:
    """Whether features are words, more of them than instances, and one label is to be told."""
    shape, x = DataShape.of(splits.train), splits.train.columns.get("x")
    if not isinstance(x, Sparse) or splits.train.has_numbers or _has_sets(splits.test.labels):
        return False
    return (shape.features or 0) >= max(WORDS, len(x))


def length(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """So many rounds that clients take part and examples are seen often enough."""
    method, sizes = experiment.method, known.sizes(experiment, splits)
    one, pictures = one_step(experiment, splits), sees_pictures(experiment, splits)
    visits, least = (ONE_STEP_VISITS, SHORTEST) if one else (VISITS, VISITS)
    most, epochs = LONGEST, EPOCHS
    if one and pictures:
        most, epochs = PICTURES_LONGEST, PICTURE_EPOCHS
        if experiment.clients.image_shift or experiment.clients.image_flip:
            least, most = MOVED_SHORTEST, MOVED_LONGEST
    elif one and method.has_class_table and is_table(experiment, splits):
        epochs = TABLE_EPOCHS
    if method.is_centralized:
        return {"rounds": least}
    busy = max(int((sizes > 0).sum()), 1)
    per_round = busy if experiment.clients.per_round == "all" else experiment.clients.per_round
    wanted = visits * busy / per_round if per_round < busy else least
    if one:  # a client's step is over a batch at most
        batch = experiment.clients.batch
        step = sizes if batch == "full" else np.minimum(sizes, batch)
        seen = step.sum() * per_round / busy
        wanted = max(wanted, epochs * sizes.sum() / max(seen, 1))
    return {"rounds": int(np.clip(math.ceil(wanted), least, most))}


def metrics(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """What is asked of such data: the class, the labels, the next item, or others of a new class."""
    judged = _judged(experiment, splits)
    if _never_trained(judged.labels, splits.train.classes):
        names = ["MAP@R", "retrieval R@1", "retrieval R@5"]
    elif "history" in splits.train.columns:
        names = ["R@10", "R@1", "nDCG@10"]
    elif _has_sets(judged.labels):
        names = ["P@1", "P@3", "P@5"]
        if experiment.privacy is None:  # propensities follow from counts of clients' classes
            names += ["PSP@1", "PSP@3", "PSP@5"]
    else:
        names = ["P@1", *(["balanced_accuracy"] if _skewed(experiment, splits) else [])]
    found = [find_metric(name) for name in names]
    there = splits.train.class_count
    deep = [one for one in found if one.needs_trained_classes and (one.looks_at or 0) > there]
    return {"eval.metrics": [metric.name for metric in found if metric not in deep]}


def evaluations(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Ten to twenty looks at a run; validation examples say which model is kept, and when to stop.

    A small set is soon overfitted, a large one never. To choose by the test part would be to tune on it.
    """
    few = min(10, max(1, experiment.rounds // 10))  # a short run is looked at too, or no trend is seen
    found: dict[str, Any] = {"eval.every": max(few, experiment.rounds // 20)}
    held = splits.validation is not None and len(splits.validation) > 0
    if not held or hides_sizes(experiment):
        return found
    by_validation = is_open(experiment, "eval.keep") or experiment.eval.keep == "best"
    long = experiment.rounds >= SHORT  # what a user has made short is not made shorter
    if long and (by_validation or experiment.eval.split == "validation"):
        found["eval.patience"] = 10
    return found | {"eval.keep": "best"}


def _judged(experiment: Experiment, splits: Splits) -> Examples:
    return splits.scored(experiment.eval.split) or splits.test


def _skewed(experiment: Experiment, splits: Splits) -> bool:
    """Whether one answer to everything would be right suspiciously often; hidden counts tell nothing."""
    if hides_sizes(experiment) or not splits.train.examples:
        return False
    classes, counts = splits.train.label_counts
    total = torch.bincount(classes.values, weights=counts.values.double())
    held = total[total > 0]
    if len(held) < 2:
        return False
    most, others = held.max(), (held.sum() - held.max()) / (len(held) - 1)
    return bool(most >= SKEWED * others)


def _has_sets(labels: Ragged) -> bool:
    return len(labels) > 0 and int(labels.lengths.max()) > 1


def _never_trained(labels: Ragged, classes: int) -> bool:
    return len(labels.values) > 0 and int(labels.values.min()) >= classes
