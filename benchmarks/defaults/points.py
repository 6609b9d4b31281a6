"""The points that tuning tries beside the default: one key at a time, and what is often tuned together.

As many for every method on a set. Each is a tuple of overrides; the first is empty, the default.
"""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[str, ...]
ADAM = ("server.optimizer=adam", "server.eps=1e-8", "server.lr_decay=cosine")  # as the default has it
LARGE = frozenset({"synthetic-20000"})


def adam(rate: float) -> Point:
    """Adam on the server at another rate: without its optimiser, a rate would be one of SGD."""
    return (*ADAM, f"server.lr={rate}")


WIDE, REGULAR = "model.hidden=[1024]", "clients.input_dropout=0.5"
ON_FEATURES: tuple[Point, ...] = (
    (),
    (WIDE,),
    ("model.hidden=[]",),
    ("model.hidden=[1024,1024]",),
    ("clients.input_dropout=0",),
    (REGULAR,),
    (WIDE, REGULAR),
    ("clients.batch=full",),
    ("rounds=100",),
    ("rounds=1000",),
    adam(0.001),
    adam(0.01),
    (WIDE, REGULAR, "clients.batch=full", "rounds=150"),
)
ON_IMAGES: tuple[Point, ...] = (
    (),
    ("rounds=2000",),
    ("rounds=2000", "clients.batch=32"),
    ("rounds=2000", "clients.batch=128"),
    ("rounds=2000", *adam(0.001)),
    ("rounds=2000", *adam(0.01)),
    ("rounds=2000", "clients.image_shift=2"),
    ("rounds=2000", "model.encoder=resnet8"),
)
FEW = "clients.per_round=32"  # of the 193 clients of Omniglot: more steps for as many images
ON_OMNIGLOT: tuple[Point, ...] = (
    (),
    (FEW, "rounds=1000"),
    (FEW, "rounds=1000", *adam(0.001)),
    (FEW, "rounds=1000", *adam(0.01)),
    (FEW, "rounds=1000", "clients.image_shift=2"),
    (FEW, "rounds=2000"),
    (FEW, "rounds=2000", "clients.image_shift=2"),
)
ON_LARGE: tuple[Point, ...] = (
    (),
    ("rounds=2000",),
    ("model.hidden=[]",),
    (WIDE,),
    ("clients.input_dropout=0",),
    adam(0.01),
)
OF_POSITIVES: tuple[Point, ...] = (
    ("method.spreadout_form=topk", "method.k=5"),
    ("method.margin=0.7",),
    ("clients.row_lr=0.3",),
)
FASTER_ROWS = (*adam(0.003), 'server.tables.classes={optimizer="adam",lr=0.01,eps=1e-8}')
OF_SAMPLES: tuple[Point, ...] = (
    ("method.scale=20",),
    ("method.weighting=uniform",),
    FASTER_ROWS,
)
OF_METHOD = {"fedaws": OF_POSITIVES, "fedalc": OF_POSITIVES, "fedss": OF_SAMPLES}


def points(name: str, method: str) -> Sequence[Point]:
    """What is tried on a set: the default first."""
    if method == "dual_encoder":
        scales = (("method.scale=5",), ("method.scale=20",))
        return ((), *(adam(rate) for rate in (0.001, 0.003, 0.03)), *scales)
    if name == "omniglot":
        longer = (FEW, "rounds=1000")
        return (*ON_OMNIGLOT, *((*longer, *point) for point in OF_METHOD[method]))
    if name.startswith("cifar"):
        return (*ON_IMAGES, *(("rounds=2000", *point) for point in OF_METHOD[method]))
    return (*(ON_LARGE if name in LARGE else ON_FEATURES), *OF_METHOD[method])
