"""The formats that a model is exported to: the files of each."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.tensor_files import write_tensors
from spreadout.runs.predict import Predictor
from spreadout.use.index import IndexKind, index_vectors, kind_for, library, made
from spreadout.use.scorer import Scorer

Format = Literal["torch-export", "onnx", "faiss", "safetensors"]
ONE_FILE = 1 << 30  # bytes; protobuf ends at two gibibytes, beyond which weights get a file of their own
AGREES = 1e-3  # between a graph and the model it is of


def torch_export(predictor: Predictor, folder: Path, kind: IndexKind | None) -> Scorer:
    """`model.pt2`, for `torch.export.load`."""
    scorer = Scorer(predictor)
    _save_program(scorer, folder / "model.pt2")
    return scorer


def onnx(predictor: Predictor, folder: Path, kind: IndexKind | None) -> Scorer:
    """`model.onnx`, for onnxruntime and others."""
    for name in ("onnx", "onnxscript"):
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--to onnx needs {name}: pip install 'spreadout[export]'")
    scorer = Scorer(predictor)
    size = sum(value.nbytes for value in scorer.state_dict().values())
    given, path = scorer.example(), folder / "model.onnx"
    with torch.no_grad(), _quiet():
        try:
            torch.onnx.export(
                scorer,
                given,
                path,
                input_names=[port.name for port in scorer.ports],
                output_names=scorer.outputs,
                dynamic_shapes=_dynamic(scorer),
                external_data=size > ONE_FILE,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            raise _no_graph(error) from error
        if importlib.util.find_spec("onnxruntime") is not None:
            _refuse_others(scorer(*given), _by_onnxruntime(path, scorer, given))
    return scorer


def _by_onnxruntime(path: Path, scorer: Scorer, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What the written file computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = {port.name: one.numpy() for port, one in zip(scorer.ports, given, strict=True)}
    return tuple(torch.from_numpy(found) for found in session.run(None, named))


def faiss(predictor: Predictor, folder: Path, kind: IndexKind | None) -> Scorer:
    """`index.faiss`, and `encoder.pt2` that makes what it is searched with."""
    vectors = index_vectors(predictor)
    scorer = Scorer(predictor, query=True)
    library().write_index(made(vectors, kind or kind_for(len(vectors))), str(folder / "index.faiss"))
    _save_program(scorer, folder / "encoder.pt2")
    return scorer


def safetensors(predictor: Predictor, folder: Path, kind: IndexKind | None) -> Scorer:
    """`model.safetensors`: every tensor by its name, for code of one's own."""
    scorer = Scorer(predictor)
    write_tensors(folder / "model.safetensors", scorer.state_dict())
    return scorer


WRITERS: dict[Format, Callable[[Predictor, Path, IndexKind | None], Scorer]] = {
    "torch-export": torch_export,
    "onnx": onnx,
    "faiss": faiss,
    "safetensors": safetensors,
}


def _save_program(scorer: Scorer, path: Path) -> None:
    given = scorer.example()
    with torch.no_grad(), _quiet():
        try:
            program = torch.export.export(scorer, given, dynamic_shapes=_dynamic(scorer))
        except Exception as error:  # an encoder of the user's own may do what no graph has
            raise _no_graph(error) from error
        _refuse_others(scorer(*given), program.module()(*given))
        torch.export.save(program, path)


def _no_graph(error: Exception) -> UserError:
    """One line; torch's ONNX exporter wraps what went wrong in pages of advice."""
    first = error.__cause__ if "onnx" in type(error).__module__ and error.__cause__ else error
    reason = str(first).strip().partition("\n")[0][:120]
    return UserError(
        f"the encoder cannot be exported ({reason}); take --to safetensors, and load its weights into "
        "the encoder itself"
    )


def _refuse_others(right: Any, found: Any) -> None:
    """A graph that computes something else than the model it was made of."""
    pairs = zip(_tensors(right), _tensors(found), strict=True)
    if not all(torch.allclose(a, b, atol=AGREES) for a, b in pairs):
        raise UserError(
            "the exported encoder gives other scores than the trained one: does it draw at random, or "
            "choose its way by the values it gets? Take --to safetensors"
        )


def _tensors(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


def _dynamic(scorer: Scorer) -> tuple[tuple[dict[int, Any], ...]]:
    """Any batch, and of sparse features any number; `forward` takes them as one tuple."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    return (tuple({0: batch, 1: length} if None in p.shape else {0: batch} for p in scorer.ports),)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says of its own insides."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
