"""The points that tuning tries beside the default: one key at a time, and what is often tuned together.

As many for every method on a set. Each is a tuple of overrides; the first is empty, the default.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.defaults.jobs import PICTURES

Point = tuple[str, ...]
ADAM = ("server.optimizer=adam", "server.eps=1e-8", "server.lr_decay=cosine")  # as the default has it
DENSE = frozenset({"digits", "cal500", "scene", "yeast", "emotions", "birds"})  # the others are text
# Of fewer than 4,000 training instances: there the server's default rate of a softmax is the lower one.
SMALL = frozenset(
    {"digits", "cal500", "corel16k", "enron", "medical", "scene", "yeast", "emotions", "birds"}
)
LARGE = "synthetic-20000"


def adam(rate: float) -> Point:
    """Adam on the server at another rate: without its optimiser, a rate would be one of SGD."""
    return (*ADAM, f"server.lr={rate}")


OTHER_HIDDEN = {True: "model.hidden=[]", False: "model.hidden=[256]"}  # of dense features, of text
WIDE, REGULAR = "model.hidden=[1024]", "clients.input_dropout=0.5"
OF_POSITIVES: tuple[Point, ...] = (
    ("method.spreadout_form=topk", "method.k=5"),
    ("method.margin=0.7",),
    ("clients.row_lr=0.3",),
)
FASTER_ROWS = (*adam(0.001), 'server.tables.classes={optimizer="adam",lr=0.01,eps=1e-8}')
OF_SAMPLES: tuple[Point, ...] = (
    ("method.scale=20",),
    ("method.weighting=uniform",),
    FASTER_ROWS,
)
OF_METHOD = {"fedaws": OF_POSITIVES, "fedalc": OF_POSITIVES, "fedss": OF_SAMPLES}
TUNED = (*OF_METHOD, "dual_encoder", "centralized", "centralized-sets")  # methods that have points


def other_rate(name: str, method: str) -> Point:
    """Adam at that of its two default rates which is not the default here."""
    slow = method == "fedss" and (name in SMALL or name in PICTURES)
    return adam(0.003 if slow else 0.001)


def points(name: str, method: str) -> Sequence[Point]:
    """What is tried on a set: the default first."""
    if method == "dual_encoder":
        scales = (("method.scale=5",), ("method.scale=20",))
        return ((), *(adam(rate) for rate in (0.001, 0.003, 0.03)), *scales)
    if method.startswith("centralized"):  # the oracle: as many points as a method has, and more steps
        return _in_one_place(name)
    other = other_rate(name, method)
    if name in PICTURES:
        return (  # those first that have helped the most elsewhere: time may cut the list off
            (),
            ("model.encoder=resnet8",),
            other,
            *OF_METHOD[method],
            ("clients.batch=64",),
            ("clients.image_shift=2",),
            ("rounds=4000",),
            adam(0.01),
        )
    if name == LARGE:
        return (
            (),
            other,
            ("model.hidden=[512]",),
            ("rounds=2000",),
            *OF_METHOD[method],
            ("clients.input_dropout=0",),
        )
    return (
        (),
        (OTHER_HIDDEN[name in DENSE],),
        (WIDE,),
        (REGULAR,),
        (REGULAR, WIDE),
        (REGULAR, *other),
        other,
        *OF_METHOD[method],
        ("rounds=1000",),
        ("clients.batch=full",),
        adam(0.01),
    )


def _in_one_place(name: str) -> Sequence[Point]:
    rates = (("clients.lr=0.001",), ("clients.lr=0.01",))
    if name in PICTURES:
        return ((), *rates, ("clients.image_shift=2",), ("rounds=200",), ("model.encoder=resnet8",))
    hidden = OTHER_HIDDEN[name in DENSE]
    return (
        (),
        (hidden,),
        (WIDE,),
        (REGULAR,),
        (REGULAR, WIDE),
        (REGULAR, WIDE, "clients.lr=0.001"),
        (REGULAR, hidden),
        *rates,
        ("clients.lr=0.0003",),
        ("clients.lr=0.0003", WIDE),
        ("rounds=300",),
        ("rounds=300", "clients.lr=0.0003", REGULAR),
    )
