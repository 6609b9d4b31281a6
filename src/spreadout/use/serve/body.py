"""The JSON of a request, read with suspicion: what does not fit is one line and a status from 400 on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic_core import from_json

from spreadout.core.errors import UserError
from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.arrays import LARGEST_FEATURE
from spreadout.data.columns import Sparse
from spreadout.data.input_columns import from_rows
from spreadout.data.unlabelled.pictures import read_picture_bytes
from spreadout.data.unlabelled.wanted import Unlabelled
from spreadout.runs.predict import Predictor
from spreadout.runs.questions import Question
from spreadout.use.serve.limits import Limits
from spreadout.use.serve.refused import Refused

KEYS = ("inputs", "top", "unseen")


def question_of(body: bytes, predictor: Predictor, limits: Limits) -> Question:
    """What a request asks, checked against the model and the limits."""
    asked = _object(body)
    inputs, top, unseen = asked["inputs"], asked.get("top", 10), asked.get("unseen", False)
    if not isinstance(inputs, list) or not inputs:
        raise Refused(422, "inputs: give a list of at least one input")
    if len(inputs) > limits.inputs:
        raise Refused(413, f"inputs: {len(inputs):,} are more than the {limits.inputs:,} of a request")
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= limits.top:
        raise Refused(422, f"top: give a whole number from 1 to {limits.top}")
    if not isinstance(unseen, bool):
        raise Refused(422, "unseen: give true or false")
    try:
        return predictor.question(_inputs(inputs, predictor), top, unseen=unseen)
    except UserError as error:
        raise Refused(422, str(error)) from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, f"the body is no JSON ({str(error)[:80]})") from None
    if not isinstance(found, dict) or "inputs" not in found:
        raise Refused(422, 'give an object with the key "inputs"')
    unknown = sorted(found.keys() - set(KEYS))
    if unknown:
        raise Refused(422, f"{unknown[0][:40]!r}: unknown; known: {', '.join(KEYS)}")
    return found


def _inputs(given: Sequence[Any], predictor: Predictor) -> Any:
    """Numbers, texts, histories, sparse features or pictures: all of a request are of one kind."""
    if not all(isinstance(one, dict) for one in given):
        texts = predictor.inputs.wanted.texts
        if texts is not None and all(isinstance(one, str) for one in given):
            return Unlabelled(texts.encode_texts(given, "inputs"))
        if any(isinstance(one, str | dict) for one in given):
            raise Refused(422, "inputs: are lists, or objects; " + _takes(predictor))
        if predictor.model.takes_histories:
            _refuse_odd_items(given)
        return given
    columns = predictor.columns
    if columns is not None and any(name in columns.names for name in given[0]):
        x, notes = columns.encode(from_rows(given, "inputs"), "inputs")
        return Unlabelled(x, notes=notes)
    if all(set(one) == {"picture"} for one in given):
        return read_picture_bytes([_decoded(one["picture"]) for one in given], predictor.inputs.wanted)
    if all(set(one) == {"ids", "values"} for one in given):
        return _sparse(given, predictor)
    if columns is not None:
        columns.refuse_missing(list(given[0]), "inputs")
    raise Refused(422, 'inputs: an object has "ids" and "values", or "picture"; ' + _takes(predictor))


def _takes(predictor: Predictor) -> str:
    return f"this model takes {predictor.inputs.wanted.described}"


def _refuse_odd_items(given: Sequence[Any]) -> None:
    for history in given:
        if not isinstance(history, list):
            raise Refused(422, "inputs: a history is a list of items, by id or title")
        for item in history:
            if isinstance(item, bool) or not isinstance(item, str | int):
                raise Refused(422, "inputs: an item is a string or a whole number")


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Refused(422, "picture: give the bytes of a picture file in base64") from None


def _sparse(given: Sequence[Mapping[str, Any]], predictor: Predictor) -> Unlabelled:
    width = predictor.inputs.wanted.features
    if predictor.model.takes_histories:
        raise Refused(422, "inputs: are lists; " + _takes(predictor))
    most = LARGEST_FEATURE if width is None else width - 1
    lengths, ids, values = [], [], []
    for one in given:
        if not isinstance(one["ids"], list) or not isinstance(one["values"], list):
            raise Refused(422, "inputs: ids and values are lists")
        if len(one["ids"]) != len(one["values"]):
            raise Refused(422, f"inputs: {len(one['ids'])} ids, but {len(one['values'])} values")
        for feature in one["ids"]:
            if isinstance(feature, bool) or not isinstance(feature, int) or not 0 <= feature <= most:
                raise Refused(422, f"ids: give whole numbers from 0 to {most:,}")
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in one["values"]):
            raise Refused(422, "values: give numbers")
        lengths.append(len(one["ids"]))
        ids += one["ids"]
        values += one["values"]
    with np.errstate(over="ignore"):
        try:
            weights = torch.from_numpy(np.array(values, dtype=np.float64).astype(np.float32))
        except OverflowError:
            raise Refused(422, "values: a number is too large") from None
    offsets = offsets_from_lengths(torch.tensor(lengths))
    wide = 1 + max(ids, default=0) if width is None else width
    return Unlabelled(Sparse(torch.tensor(ids, dtype=torch.int64), weights, offsets, wide))
