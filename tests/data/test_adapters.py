"""Tables of other libraries, real ones: data frames, Hugging Face and Flower data sets, torch data sets."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import spreadout as so

KINDS = np.array(["ash", "fir", "yew"])
Y = np.repeat(np.arange(3), 8)
X = (np.eye(3, 4)[Y] + 0.01 * np.arange(24)[:, None]).astype(np.float32)
WOOD = np.array(["north", "south"])[np.arange(24) % 2]
TREES = {**{f"f{i}": X[:, i] for i in range(4)}, "kind": KINDS[Y], "wood": WOOD}


def scored(train: so.FederatedDataset, test: so.Examples) -> float:
    data = so.Splits("trees", train, test)
    return float(so.run(so.Experiment(rounds=40), data=data).metrics["P@1"])


def inputs_of(train: so.FederatedDataset) -> np.ndarray:
    return train.columns["x"].take(torch.arange(train.examples)).numpy()


def test_a_data_frame_with_named_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(TREES)
    train = so.FederatedDataset.from_frame(frame, label="kind", client="wood")
    assert (train.clients, train.classes) == (2, 3)
    assert train.class_names == ("ash", "fir", "yew")
    assert train.client_names == ("north", "south")
    assert np.array_equal(inputs_of(train), np.concatenate([X[0::2], X[1::2]]))
    test = so.Examples.from_frame(frame[["kind", "f0", "f1", "f2", "f3"]], label="kind", like=train)
    assert test.labels.values.tolist() == Y.tolist()
    assert (
        scored(so.FederatedDataset.from_frame(frame.drop(columns="wood"), label="kind"), test) == 100.0
    )
    few = so.FederatedDataset.from_frame(frame, label="kind", client="wood", features=["f2", "f0"])
    assert np.array_equal(inputs_of(few)[0], X[0, [2, 0]])
    categorical = frame.assign(kind=frame.kind.astype("category"))
    assert (
        so.FederatedDataset.from_frame(categorical, label="kind", client="wood").class_names
        == train.class_names
    )


def test_numbers_that_are_written_as_text_are_no_texts() -> None:
    with pytest.raises(so.UserError, match=r"column 'size' has '1.5', which is no number"):
        so.FederatedDataset.from_frame({"size": ["1.5", "2"], "kind": ["ash", "fir"]}, label="kind")


def test_a_cell_that_is_no_text_is_named() -> None:
    said = {"note": ["a tall one", ["tall"], "small"], "kind": ["ash", "fir", "yew"]}
    with pytest.raises(so.UserError, match=r"row 2: note is \"\['tall'\]\", no text"):
        so.FederatedDataset.from_frame(said, label="kind")
    train = so.FederatedDataset.from_frame({**said, "note": ["tall", None, "small"]}, label="kind")
    with pytest.raises(so.UserError, match=r"row 3: note is '\{\}', no text"):
        so.Examples.from_frame({**said, "note": [1.0, "", {}]}, label="kind", like=train)


def test_two_columns_of_one_name_are_not_taken_twice() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(np.eye(2), columns=["a", "a"]).assign(b=[0, 1])
    with pytest.raises(so.UserError, match="data has two columns 'a'; rename one"):
        so.FederatedDataset.from_frame(frame, label="b")


def test_what_is_wrong_with_a_table_is_named() -> None:
    with pytest.raises(so.UserError, match="no column 'kinds'; did you mean 'kind'"):
        so.FederatedDataset.from_frame(TREES, label="kinds")
    with pytest.raises(so.UserError, match="column 'wood' has 'north', which is no number"):
        so.FederatedDataset.from_frame(TREES, label="kind")
    with pytest.raises(so.UserError, match="no column beside 'kind'"):
        so.FederatedDataset.from_frame({"kind": ["a"]}, label="kind")
    with pytest.raises(so.UserError, match="data: is a int; give a data frame"):
        so.FederatedDataset.from_frame(3, label="kind")
    missing = {"f": [0.0, 1.0], "kind": ["ash", None]}
    with pytest.raises(so.UserError, match="y is missing in example 1"):
        so.FederatedDataset.from_frame(missing, label="kind")


def test_a_data_set_of_hugging_face_keeps_the_names_of_its_classes() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    kinds = datasets.ClassLabel(names=["yew", "fir", "ash"])  # its own order, not the alphabet's
    held = datasets.Dataset.from_dict(
        {"vector": X.tolist(), "label": (2 - Y).tolist(), "wood": WOOD.tolist()}
    ).cast_column("label", kinds)
    train = so.FederatedDataset.from_huggingface(held, client="wood", features="vector")
    assert train.class_names == ("yew", "fir", "ash")
    assert train.client_names == ("north", "south")
    assert np.allclose(inputs_of(train), np.concatenate([X[0::2], X[1::2]]))
    test = so.Examples.from_huggingface(held, features="vector", like=train)
    assert test.labels.values.tolist() == (2 - Y).tolist()
    own = so.FederatedDataset.from_huggingface(held, features="vector")  # a client for every class
    assert own.clients == 3
    assert scored(own, test) == 100.0


def test_pictures_of_hugging_face_are_images() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    held = datasets.Dataset.from_dict(
        {"image": [image.fromarray(one) for one in pixels], "label": [0, 1, 2, 0, 1, 2]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    train = so.FederatedDataset.from_huggingface(held)
    assert so.DataShape.of(train).image == (3, 8, 8)
    assert so.DataShape.of(train).bytes_as is not None  # as pixels, −1 … 1
    assert inputs_of(train).min() >= -1


def test_partitions_of_flower_datasets_are_clients() -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    partitioners = pytest.importorskip(
        "flwr_datasets.partitioner", reason="flwr-datasets is not installed"
    )
    held = datasets.Dataset.from_dict({"vector": X.tolist(), "label": KINDS[Y].tolist()})
    cut = partitioners.DirichletPartitioner(
        num_partitions=4, partition_by="label", alpha=0.5, min_partition_size=1, seed=0
    )
    cut.dataset = held
    parts = [cut.load_partition(i) for i in range(4)]
    train = so.FederatedDataset.from_partitions(parts)
    assert train.clients == 4
    assert train.sizes.tolist() == [len(part) for part in parts]
    assert train.class_names == ("ash", "fir", "yew")
    for i, part in enumerate(parts):
        mine = train.view(i)
        names = [
            train.class_names[c] for c in mine.columns["y"].take(torch.arange(mine.examples)).tolist()
        ]
        assert names == part["label"]
        assert np.allclose(inputs_of(mine), np.array(part["vector"]))


def test_frames_of_clients_by_name() -> None:
    parts = {"b": {"f": [1.0, 2.0], "label": [1, 0]}, "a": {"f": [3.0], "label": [1]}}
    train = so.FederatedDataset.from_partitions(parts)
    assert train.client_names == ("a", "b")
    assert inputs_of(train)[:, 0].tolist() == [3.0, 1.0, 2.0]


def test_partitions_that_do_not_fit_are_named() -> None:
    full: dict[str, list[float]] = {"f": [1.0, 2.0], "label": [1, 0]}
    with pytest.raises(so.UserError, match="partitions: client b has no examples; leave it out"):
        so.FederatedDataset.from_partitions({"a": full, "b": {"f": [], "label": []}})
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    held = datasets.Dataset.from_dict({"vector": X.tolist(), "label": Y.tolist()})
    with pytest.raises(so.UserError, match="partitions: client 1 has no examples; leave it out"):
        so.FederatedDataset.from_partitions([held, held.select([])])
    parts = [
        held.cast_column("label", datasets.ClassLabel(names=list(names))) for names in ("abc", "cba")
    ]
    with pytest.raises(so.UserError, match="client 1 calls its classes by other names"):
        so.FederatedDataset.from_partitions(parts)


def test_columns_called_by_numbers() -> None:
    train = so.FederatedDataset.from_frame({0: [1.0, 2.0], 1: [0, 1]}, label="1")
    assert inputs_of(train)[:, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("label", [-1, 3, None])
def test_a_number_that_is_no_class_is_not_the_last_one(label: int | None) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    features = datasets.Features({"f": datasets.Value("float32"), "label": datasets.Value("int64")})
    plain = {"f": [0.0, 1.0, 2.0], "label": [0, 1, 2]}
    kinds = datasets.ClassLabel(names=["ash", "fir", "yew"])
    good = datasets.Dataset.from_dict(plain).cast_column("label", kinds)
    train = so.FederatedDataset.from_huggingface(good)
    table = datasets.Dataset.from_dict({**plain, "label": [0, label, 2]}, features=features)
    odd = table.with_format(None)
    odd.info.features["label"] = kinds  # as published data sets without test labels have it
    said = f"y is {label} in example 1, which is none of its 3 classes"
    with pytest.raises(so.UserError, match=said):
        so.FederatedDataset.from_huggingface(odd)
    for like in (train, None):
        with pytest.raises(so.UserError, match=said):
            so.Examples.from_huggingface(odd, like=like)


def test_a_data_set_of_torch() -> None:
    whole = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    train = so.FederatedDataset.from_torch(whole, client=WOOD)
    assert train.client_names == ("north", "south")
    assert np.array_equal(inputs_of(train), np.concatenate([X[0::2], X[1::2]]))
    test = so.Examples.from_torch(whole)
    assert scored(so.FederatedDataset.from_torch(whole), test) == 100.0

    class Named(Dataset):  # type: ignore[type-arg]
        classes = ("ash", "fir", "yew")

        def __len__(self) -> int:
            return 6

        def __getitem__(self, at: int) -> tuple[np.ndarray, int]:
            return X[at * 3], int(Y[at * 3])

    named = so.FederatedDataset.from_torch(Named())
    assert named.class_names == ("ash", "fir", "yew")
    assert (
        so.Splits("n", named, so.Examples.from_torch(Named(), like=named)).class_names
        == named.class_names
    )

    class Triples(Named):
        def __getitem__(self, at: int) -> tuple[int, int, int]:  # type: ignore[override]
            return at, at, at

    with pytest.raises(so.UserError, match=r"its items are not pairs \(x, y\)"):
        so.FederatedDataset.from_torch(Triples())


def test_a_sparse_matrix_is_what_it_is_densely() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    x = np.where(X > 1, X, 0)
    dense = so.FederatedDataset.from_arrays(x, Y, client=WOOD)
    for kind in (scipy.csc_matrix, scipy.coo_array, scipy.csr_array):
        train = so.FederatedDataset.from_arrays(kind(x), Y, client=WOOD)
        assert isinstance(train.columns["x"], so.Sparse)
        assert np.array_equal(inputs_of(train), inputs_of(dense))
    test = so.Examples.from_arrays(scipy.csr_array(x), Y)
    data = so.Splits("sparse", train, test)
    result = so.run({"rounds": 30}, data=data, method="fedaws")
    assert result.metrics["P@1"] > 90
    assert result.predict(x[:2], 1) == result.predict(scipy.csr_array(x[:2]), 1)


def test_what_is_wrong_with_a_sparse_matrix_is_named() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    for x, said in (
        (scipy.csr_array((3, 0)), r"shape \(3, 0\), so no features"),
        (scipy.csr_array(np.array([[0, 1j], [1, 0], [0, 0]])), "type complex128: give numbers"),
        (scipy.csr_array(np.array([[0.0, 0.0], [1.0, np.inf], [0.0, 0.0]])), "not finite in example 1"),
        (scipy.csr_array(np.eye(2)), "x has 2 examples, y has 3"),
    ):
        with pytest.raises(so.UserError, match=said):
            so.FederatedDataset.from_arrays(x, [0, 1, 1])


def test_tensors_of_any_kind() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    for given in (x.clone().requires_grad_(), x.bfloat16(), x.to_sparse()):
        assert inputs_of(so.FederatedDataset.from_arrays(given, [0, 1])).tolist() == x.tolist()
