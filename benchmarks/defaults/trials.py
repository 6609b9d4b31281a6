"""Changes that might make better defaults, each tried on the validation part of some sets.

    python -m benchmarks.defaults.trials --groups rates,histories --mulan ~/mulan --workers 15

Results are added to `results/defaults/trials.json`; what is there already is not run again. `--sets` and
`--methods` leave out the others. `--npz NAME=PATH` says where a set's arrays are, if not in
SPREADOUT_DATA; images that the group `augmentation` does not know are tried too. The group `tables` is
of those that `--folder NAME=FILE.arff` names.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import record
from benchmarks.common.command import command, names, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import PICTURES, SETS, Job, own_sets, parser_for, run_all
from benchmarks.defaults.run_file import add, key_of, runs_in
from spreadout.core.errors import UserError

OUT = RESULTS / "defaults" / "trials.json"
ADAM = ("server.optimizer=adam", "server.eps=1e-8", "server.lr_decay=cosine")
ONE_STEP = ("clients.local_steps=1", "clients.lr=0.1", "clients.lr_decay=cosine")
SHORT = "rounds=50"  # of a range test
MULAN = ("enron", "medical", "yeast", "scene", "emotions")
MIRRORED = ("cifar-10", "cifar-100")  # by default: the other images have a side
THREE_OF_TEN = ("data.validation_fraction=0.3",)
Trial = tuple[str, str, tuple[str, ...]]  # a set, a method, and what is changed


def adam(rate: float) -> tuple[str, ...]:
    return (*ADAM, f"server.lr={rate}")


def plain(rate: float) -> tuple[str, ...]:
    return ("server.optimizer=sgd", f"server.lr={rate}")


def _rates() -> Iterator[Trial]:
    """One rate for all sets, a rate for each set by a short range test, or no rate at all (DoG)."""
    dog = ("server.optimizer=dog", "server.lr=1.0", "server.lr_decay=cosine")
    for name in ("digits", "bibtex", *MULAN):
        for method in ("fedaws", "fedss"):
            for rate in (0.001, 0.003, 0.01, 0.03):
                yield name, method, adam(rate)
                yield name, method, (*adam(rate), SHORT)
            yield name, method, dog


def _histories() -> Iterator[Trial]:
    """One local step of many examples instead of an epoch of many steps."""
    name, method, large = "movielens-1m", "dual_encoder", "clients.batch=256"
    yield name, method, ("rounds=300",)
    yield name, method, (*ONE_STEP, *adam(0.003), "clients.batch=64", "rounds=1000")
    for rate in (0.001, 0.003, 0.01):
        yield name, method, (*ONE_STEP, *adam(rate), large, "rounds=1000")
    for change in (
        ("rounds=500",),
        ("rounds=1000", "model.dim=128"),
        ("rounds=1000", "model.layers=2"),
        ("rounds=1000", "method.scale=20"),
    ):
        yield name, method, (*ONE_STEP, *adam(0.003), large, *change)


def _pictures() -> Iterator[Trial]:
    for method in ("fedaws", "fedss"):
        for change in ((), ("rounds=1000",), ("rounds=1000", "clients.image_shift=2")):
            yield "cifar-10", method, change


def _many_classes() -> Iterator[Trial]:
    """Twenty thousand clients with one class each: how many of them a round, at which rate."""
    name = "synthetic-20000"
    for clients in (1000, 2000):
        yield name, "fedaws", (f"clients.per_round={clients}", "rounds=1000")
    yield name, "fedaws", ("clients.per_round=1000", "rounds=1000", *adam(0.01))
    yield name, "fedaws", ("clients.per_round=1000", "rounds=1000", "method.spreadout_form=topk")
    yield name, "fedaws", ("clients.per_round=1000", "rounds=1000", "clients.selection=uniform")
    yield name, "fedaws", ("clients.per_round=1000", "rounds=1000", "clients.input_dropout=0")
    yield name, "fedss", ("clients.per_round=1000", "rounds=1000")


def _cohorts() -> Iterator[Trial]:
    """Steps of images by few clients or by many: results/defaults/cohorts.json."""
    small = ("data.source.size=14", "model.width=32", "rounds=400")
    asked = {
        "few_classes": (("32", 32), ("all", 21), ("all", 8), ("all", 4)),
        "by_label": (("32", 32), ("128", 8), ("256", 4)),
    }
    for method in ("fedaws", "fedss"):
        for partition, steps in asked.items():
            for clients, batch in steps:
                cohort = (f"clients.per_round={clients}", f"clients.batch={batch}")
                yield "omniglot", method, (f"data.partition={partition}", *cohort, *small)
        for cohort in (
            ("clients.per_round=8", "clients.batch=128"),
            ("clients.per_round=all", "clients.batch=102"),
        ):
            yield "cifar-10", method, (*cohort, "clients.image_shift=4")


def _augmentation() -> Iterator[Trial]:
    """Images as they are, shifted, and mirrored too; and what is chosen of these for longer."""
    for name, side in PICTURES.items():
        for method in ("fedaws", "fedss"):
            moved = _moved(str(side // 8))
            for change in moved:
                yield name, method, (*change, "rounds=2000")
            yield name, method, (*moved[2 if name in MIRRORED else 1], "rounds=4000")


def of_own_images(name: str, side: int) -> Iterator[Trial]:
    """Of a small set: how many rounds moved images need, how far to move them, and mirroring anyway."""
    still, _, mirrored = _moved("auto")
    half = (f"clients.image_shift={max(1, side // 16)}",)
    for method in ("fedaws", "fedss"):
        for rounds in ("rounds=300", "rounds=1000", "rounds=2000"):
            yield name, method, (*still, rounds)
            yield name, method, (rounds,)
        for change in (half, mirrored):
            yield name, method, (*change, "rounds=2000")


def of_own_table(name: str) -> Iterator[Trial]:
    """Of numbers: a fifth dropped or none, more rounds, a second layer; judged on three rows of ten."""
    kept, longer = "clients.input_dropout=0", "rounds=1000"
    changes: tuple[tuple[str, ...], ...] = (
        ("clients.input_dropout=0.2", "rounds=300"),
        (kept, "rounds=300"),
        ("clients.input_dropout=0.2", longer),
        (kept, longer),
        (kept, longer, "model.hidden=[256,256]"),
    )
    for change in changes:
        yield name, "fedaws", (*THREE_OF_TEN, *change)
    for change in (*changes, (kept, longer, *adam(0.003))):
        yield name, "fedss", (*THREE_OF_TEN, *change)


def of_own_small_table(name: str) -> Iterator[Trial]:
    """Of a few hundred rows: a fifth of the numbers dropped, or none."""
    for method in ("fedaws", "fedss"):
        for dropped in ("0.2", "0"):
            change = (f"clients.input_dropout={dropped}", "rounds=300")
            yield name, method, (*THREE_OF_TEN, *change)


def of_own_large_table(name: str) -> Iterator[Trial]:
    """Of thousands of rows: more rounds, a wider layer, a second one."""
    kept = "clients.input_dropout=0"
    for method in ("fedaws", "fedss"):
        for rounds in ("rounds=300", "rounds=1000", "rounds=2000"):
            yield name, method, (kept, rounds)
        for hidden in ("512", "256,256"):
            yield name, method, (kept, "rounds=1000", f"model.hidden=[{hidden}]")


def of_own_longer_table(name: str) -> Iterator[Trial]:
    """Of any table: the default, more rounds, a wider layer; judged on three rows of ten."""
    for method in ("fedaws", "fedss"):
        for change in ((), ("rounds=1000",), ("rounds=2000",), ("model.hidden=[512]",)):
            yield name, method, (*THREE_OF_TEN, *change)


def of_own_wide_table(name: str) -> Iterator[Trial]:
    """More columns than rows: no hidden layer, and plain steps, which move a column of noise less."""
    linear = "model.hidden=[]"
    changes: tuple[tuple[str, ...], ...] = (
        (),
        (linear,),
        plain(10),
        *((linear, *plain(rate)) for rate in (3, 10, 30)),
    )
    for method in ("fedaws", "fedss"):
        for change in changes:
            yield name, method, (*THREE_OF_TEN, *change)


def of_own_labels(name: str) -> Iterator[Trial]:
    """Of some labels: FedMLH with fewer buckets than labels, which is the default, and with more."""
    for change in ((), ("method.buckets=64",)):
        yield name, "fedmlh", (*THREE_OF_TEN, *change)


def of_own_text(name: str) -> Iterator[Trial]:
    """Of words: FedAwS is soon better on the training examples than on others."""
    for change in ((), ("clients.input_dropout=0.5",), ("method.margin=0.7",), ("method.margin=0.5",)):
        yield name, "fedaws", change
    for change in ((), ("clients.input_dropout=0.5",)):
        yield name, "fedss", change


def of_own_short_texts(name: str) -> Iterator[Trial]:
    """Of few words each: Adam steps as far along a word seen once as along others, but for a large ε."""
    for method, tried in (
        ("fedaws", (1e-8, 1e-4, 3e-4, 1e-3, 1e-2)),
        ("fedss", (1e-8, 1e-5, 1e-4, 3e-4, 1e-3)),
    ):
        for eps in tried:
            yield name, method, (*THREE_OF_TEN, f"server.eps={eps:g}")


def _moved(shift: str) -> tuple[tuple[str, ...], ...]:
    still = ("clients.image_shift=0", "clients.image_flip=false")
    shifted = (f"clients.image_shift={shift}", "clients.image_flip=false")
    return still, shifted, (f"clients.image_shift={shift}", "clients.image_flip=true")


OF_OWN = {
    "tables": of_own_table,
    "small-tables": of_own_small_table,
    "large-tables": of_own_large_table,
    "length": of_own_longer_table,
    "wide-tables": of_own_wide_table,
    "labels": of_own_labels,
    "texts": of_own_text,
    "short-texts": of_own_short_texts,
}
GROUPS: Mapping[str, Sequence[Trial]] = {
    "rates": tuple(_rates()),
    "histories": tuple(_histories()),
    "pictures": tuple(_pictures()),
    "many-classes": tuple(_many_classes()),
    "cohorts": tuple(_cohorts()),
    "augmentation": tuple(_augmentation()),
    **dict.fromkeys(OF_OWN, ()),  # those that --folder names
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=(), seeds="0", out=OUT)
    parser.add_argument("--groups", type=names, default=",".join(GROUPS))
    parser.add_argument("--mulan", type=Path, help="the folder of the sets in MULAN")
    given = parser.parse_args(arguments)
    commit = record.commit()
    known = set() if given.again else {key_of(run) for run in runs_in(given.out)}
    own = own_sets(given)
    asked = [
        replace(_job(trial, own, given.mulan), seed=seed, device=given.device)
        for trial in _asked(given, own)
        for seed in given.seeds
    ]
    jobs = [job for job in asked if key_of({**job.about, "split": job.split}) not in known]
    for job, found in run_all(jobs, given.workers, given.seconds):
        about = {"changes": list(job.changes), "split": job.split, "commit": commit}
        add(given.out, {**found, **about})


def _asked(given: Namespace, own: Mapping[str, Any]) -> Iterator[Trial]:
    """The trials of the groups, of those sets and methods that are named, if any are."""
    sets, methods = set(given.sets), set(given.methods)
    refuse_unknown("--groups", given.groups, list(GROUPS))
    for group in given.groups:
        for trial in (*GROUPS[group], *_of_own(group, own)):
            if (not sets or trial[0] in sets) and (not methods or trial[1] in methods):
                yield trial


def _of_own(group: str, own: Mapping[str, Any]) -> Iterator[Trial]:
    """What a group tries on sets that it does not know."""
    for name in (name for name in own if name not in SETS):
        if group == "augmentation":
            yield from of_own_images(name, _side(own[name]["path"]))
        elif group in OF_OWN:
            yield from OF_OWN[group](name)


def _side(path: str) -> int:
    """Of the images in a file of arrays, whatever the order of their axes."""
    with np.load(path) as arrays:
        return int(max(arrays["x"].shape[1:]))


def _job(trial: Trial, own: Mapping[str, Any], mulan: Path | None) -> Job:
    name, method, changes = trial
    if name in own:
        return Job(name, method, 0, changes, "validation", data=own[name])
    if name in SETS:
        return Job(name, method, 0, changes, "validation")
    if mulan is None:
        raise UserError(f"{name}: --mulan names the folder it lies in")
    data = {"source": "mulan", "path": str(mulan / name)}
    return Job(name, method, 0, changes, "validation", data=data)


if __name__ == "__main__":
    command(main)
