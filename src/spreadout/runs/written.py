"""What the files of a run folder hold: one schema for each, asked whenever a file is read back.

A digest tells that a file is the one that was written. Where there is none, because somebody deleted
`SHA256SUMS` or wrote a digest of their own, the schema still tells what a run would never write.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from spreadout.core.written import Count, Written
from spreadout.runs.logs import LOGS

Number = Annotated[float, Field(ge=-1e100, le=1e100, allow_inf_nan=False)]
Score = Number | None  # what is not finite is written as null
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Text = Annotated[str, Field(max_length=10_000)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$")]  # not ..
Own = list[Literal["data", "encoder", "method"]]


class Spread(Written):
    """The geometry of the classes that is shown; all of it null without a class table."""

    max_cosine: Score
    mean_cosine: Score
    effective_rank: Score
    error_bound: Score

    @model_validator(mode="after")
    def _together(self) -> Spread:
        if (self.max_cosine is None) != (self.effective_rank is None):
            raise ValueError("max_cosine or effective_rank is missing")
        return self


class ReferenceScores(Written):
    metrics: dict[str, Score]
    seconds: Number
    note: Text
    is_trivial: bool


class ReferencesFrom(Written):
    instances: Count
    scored: Text


class FindingSaid(Written):
    name: Text
    sign: Text
    remedy: Text


class PriorGain(Written):
    """Scores with the prior over classes and without."""

    weight: Number
    frequent_classes: Count
    examples: Count
    with_prior: dict[str, Score]
    without: dict[str, Score]


class Guarantee(Written):
    guarantee: Text
    epsilon: Score
    delta: Number


class Moved(Written):
    down: Count
    up: Count
    participations: Count
    __pydantic_extra__: dict[str, Count]


class Best(Written):
    round: Count
    __pydantic_extra__: dict[str, Score]


class Summary(Written):
    """`summary.json`; what has a default is not in those of earlier versions."""

    name: Text
    method: Text
    is_centralized: bool = False
    dataset: Text
    clients: Count
    classes: Count
    rounds: Count
    metrics: dict[str, Score] = Field(min_length=1)
    keep: Text = "last"
    kept_round: Count | None = None
    best_by: list[str] | None = None
    stopped_early: bool = False
    best: Best
    references: dict[str, ReferenceScores] = Field(default_factory=dict)
    references_from: ReferencesFrom | None = None
    references_note: Text = ""
    findings: list[FindingSaid] = Field(default_factory=list)
    data_notes: list[Text] = Field(default_factory=list)
    prior: PriorGain | None = None
    geometry: Spread
    model_bytes: Count = 0
    bytes: Moved
    seconds: Number
    refused_updates: dict[str, Count]
    privacy: Guarantee | None = None
    table_privacy: Guarantee | None = None
    seed: int
    device: Text
    versions: dict[str, Text]

    @model_validator(mode="before")
    @classmethod
    def _of_today(cls, value: Any) -> Any:
        if isinstance(value, dict) and "gauges" in value:
            raise ValueError("it is of an earlier version: run it again")
        return value

    @model_validator(mode="after")
    def _of_the_same_metrics(self) -> Summary:
        lacks = self.metrics.keys() - (self.best.__pydantic_extra__ or {}).keys()
        if lacks:
            raise ValueError(f"best has no {min(lacks)}")
        return self


class Evaluated(Written):
    """A line of `metrics.jsonl`; beside this it has a number or null for every metric."""

    round: Count
    loss: Score
    weights_norm: Score = None
    bytes_down: Count
    bytes_up: Count
    seconds: Number
    refused: dict[str, Count]
    collapsing: bool = False
    __pydantic_extra__: dict[str, bool | Score]


class Requested(Written):
    """A line of `requests.jsonl`."""

    round: Count
    client: Count
    rows: list[Count]


class ChannelSaid(Written):
    status: Literal["protected", "disclosed", "absent"]
    what: Text


class EpsilonAt(Written):
    delta: Number
    epsilon: Score


class PrivacySaid(Written):
    """`privacy.json`."""

    guarantee: Text
    setting: Text
    unit: Text
    adjacency: Text
    adversary: Text
    sampler: Text | None
    epsilon: list[EpsilonAt]
    releases: dict[str, Count]
    channels: dict[str, ChannelSaid] = Field(min_length=1)


class SmallRows(Written):
    """Rows of class coordinates, a byte each."""

    dims: Annotated[int, Field(ge=1, le=4096)]
    data: str

    def refuse_other_than(self, rows: int) -> None:
        if len(self.data) != -(-rows * self.dims // 3) * 4:
            raise ValueError(f"vectors are not those of {rows} classes")


class Projection(Written):
    """`projection.json`."""

    classes: list[Pair]
    examples: list[Pair]
    labels: list[Count]
    ids: list[Count] | None = None  # which classes these are; None: all
    vectors: SmallRows | None = None  # not in those of earlier versions

    @model_validator(mode="after")
    def _as_many(self) -> Projection:
        if len(self.examples) != len(self.labels):
            raise ValueError(f"{len(self.examples)} examples have {len(self.labels)} labels")
        if self.ids is not None and len(self.ids) != len(self.classes):
            raise ValueError(f"{len(self.classes)} classes have {len(self.ids)} ids")
        if self.vectors is not None:
            self.vectors.refuse_other_than(len(self.classes))
        return self


class ByFrequency(Written):
    low: Count
    high: Count
    classes: Count
    tested: Count
    found: Count


class EachClass(Written):
    trained: list[Count]
    tested: list[Count]
    found: list[Count]

    @model_validator(mode="after")
    def _as_many(self) -> EachClass:
        if len({len(self.trained), len(self.tested), len(self.found)}) > 1:
            raise ValueError("counts of some classes are missing")
        return self


class EachClient(Written):
    of: Count
    number: list[Count]
    examples: list[Count]
    visits: list[Count]
    down: list[Count]
    up: list[Count]
    score: list[Score]
    holds: list[list[Count] | None]

    @model_validator(mode="after")
    def _as_many(self) -> EachClient:
        every = (self.examples, self.visits, self.down, self.up, self.score, self.holds)
        if any(len(one) != len(self.number) for one in every):
            raise ValueError("numbers of some clients are missing")
        return self


class Alike(Written):
    before: list[Number] | None
    after: list[Number]


class Details(Written):
    """`details.json`."""

    examples: Count
    depth: Count
    by_frequency: list[ByFrequency]
    classes: EachClass | None
    confused: list[Annotated[list[Count], Field(min_length=3, max_length=3)]] | None
    clients: EachClient | None
    similarity: Alike | None


Size = Annotated[int, Field(ge=0, lt=2**31)]


class Shape(Written):
    """As `models.build.DataShape`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    classes: Size
    first_class: Size
    features: Size | None
    window: Size | None
    image: Annotated[list[Size], Field(min_length=3, max_length=3)] | None = None
    bytes_as: Pair | None = None

    @model_validator(mode="after")
    def _has_classes(self) -> Shape:
        if self.first_class >= self.classes:
            raise ValueError("it has no class")
        return self


class WrittenColumn(Written):
    """As `data.input_columns.InputColumn`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    width: Size
    values: list[str | None]
    mean: Number | None
    words: bool = False
    declared: bool = False

    @model_validator(mode="after")
    def _has_its_indicators(self) -> WrittenColumn:
        if self.values and (self.values[0] is None or self.width != len(self.values) - 1):
            raise ValueError("its values are not those of its indicators")
        return self


class WrittenColumns(Written):
    """As `data.input_columns.InputColumns`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    columns: list[WrittenColumn]
    beside: list[str]


class About(Written):
    """`model/about.json`."""

    shape: Shape
    own: Own = Field(default_factory=list)
    own_encoder: bool = False  # of earlier versions
    names: list[str]
    ids: list[str]
    columns: WrittenColumns | None = None  # of inputs, where they have names


class Mark(Written):
    bytes: Count
    sha256: Digest


class Pointer(Written):
    """`checkpoint/state.json`."""

    format: Literal[3]
    round: Annotated[int, Field(ge=0, lt=2**31)]
    tensors: str
    order: list[str]
    sha256: Digest
    logs: dict[Literal[LOGS], Mark]  # type: ignore[valid-type]
    traffic: dict[str, Count]
    refused: dict[str, Count]
    setup_done: bool
    extra: dict[str, Any]
    config: dict[str, Digest] | None = None  # of the config it was trained with, by section

    @model_validator(mode="after")
    def _names_its_own_file(self) -> Pointer:
        if self.tensors != f"state-{self.round:08d}.safetensors":
            raise ValueError(f"its tensors are not those of round {self.round}")
        return self


class Progress(Written):
    """What a run keeps in its checkpoint beside the server's state: `extra`."""

    seconds: Number
    collapse_warned: bool
    own: Own
    data: Text
    data_notes: list[Text] = Field(default_factory=list)  # not in those of earlier versions


class Compared(Written):
    name: FolderName
    label: Text


class ComparisonTable(Written):
    """`comparison.json`, as far as it is read again."""

    seeds: list[int] = Field(min_length=1)
    variants: list[Compared] = Field(min_length=1)
