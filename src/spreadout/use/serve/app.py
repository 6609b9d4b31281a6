"""The HTTP application: `/predict`, `/embed`, `/model`, `/health`, and `/docs` made of the schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Literal

import torch
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware
from torch import Tensor

from spreadout import __version__
from spreadout.runs.asked import Asked
from spreadout.runs.predict import Predictor
from spreadout.runs.questions import Guess, Question
from spreadout.use.serve.batching import Batcher
from spreadout.use.serve.body import question_of
from spreadout.use.serve.docs_page import docs_page
from spreadout.use.serve.http import answer_errors, json_answer, read_body
from spreadout.use.serve.limits import Limits
from spreadout.use.serve.refused import Refused
from spreadout.use.serve.schema import About, Answer, Ask, Error, Health, Vectors

LARGE = 1 << 16  # bytes; a larger body is read in a thread, so that others are not kept waiting
Wish = tuple[Literal["classes", "vectors"], Question]
Granted = list[list[Guess]] | Tensor  # vectors are (n, dim)


def create_app(
    predictor: Predictor,
    limits: Limits | None = None,
    *,
    run: dict[str, Any] | None = None,
    index: str = "exact",
    hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """The application around a model; hosts: names under which it answers."""
    bounds = limits or Limits()
    batcher: Batcher[Wish, Granted] = Batcher(
        lambda wishes: _granted(predictor, wishes),
        lambda wish: len(wish[1].asked),
        batch=bounds.batch,
        waiting=bounds.waiting,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        batcher.close()

    app = FastAPI(
        title="spreadout",
        version=__version__,
        description="A trained model.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from another host
        redoc_url=None,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.state.batcher = batcher

    async def question(request: Request) -> Question:
        body = await read_body(request, bounds.body, bounds.seconds, "send fewer inputs at a time")
        if len(body) < LARGE:
            return question_of(body, predictor, bounds)
        return await asyncio.to_thread(question_of, body, predictor, bounds)

    @app.post("/predict", **_described(Answer))
    async def predict(request: Request) -> Response:
        """The best classes of every input, with their names and scores."""
        asked = await question(request)
        found = await batcher.ask(("classes", asked))
        assert not isinstance(found, Tensor)
        notes = {"notes": asked.asked.notes} if asked.asked.notes else {}
        return json_answer(
            {"results": [[asdict(guess) for guess in guesses] for guesses in found], **notes}
        )

    @app.post("/embed", **_described(Vectors))
    async def embed(request: Request) -> Response:
        """Every input as a vector, as it is compared with classes."""
        asked = await question(request)
        if not predictor.model.has_class_table:
            raise Refused(422, "this model scores classes by buckets, and has no embeddings")
        found = await batcher.ask(("vectors", asked))
        assert isinstance(found, Tensor)
        return json_answer({"embeddings": found.tolist()})

    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """Whether it answers."""
        return json_answer({"status": "ok", "waiting": batcher.waiting})

    @app.get("/model", response_model=About)
    async def model() -> Response:
        """What it is: what it takes, how many classes it knows, how it was trained, what is refused."""
        takes = predictor.inputs.wanted.described
        about = {"takes": takes, "classes": predictor.class_count, "index": index}
        return json_answer({**about, "limits": asdict(bounds), "run": run})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(app.openapi()), media_type="text/html")

    answer_errors(app)
    return app


def _granted(predictor: Predictor, wishes: Sequence[Wish]) -> list[Granted]:
    """What each asks for, in their order: those of a kind are computed together."""
    plain = [question for kind, question in wishes if kind == "classes"]
    answers = iter(predictor.answer(plain) if plain else ())
    inputs = [question.asked for kind, question in wishes if kind == "vectors"]
    every = predictor.embed(Asked.joined(inputs)) if inputs else torch.empty(0)
    embedded = iter(torch.split(every, [len(one) for one in inputs]) if inputs else ())
    return [next(answers) if kind == "classes" else next(embedded) for kind, _ in wishes]


def _described(answer: type[BaseModel]) -> dict[str, Any]:
    """Of a route whose body is read by hand: what it takes and gives."""
    schema = Ask.model_json_schema()
    errors = {code: {"model": Error} for code in (400, 413, 422, 503)}
    body = {"content": {"application/json": {"schema": schema}}, "required": True}
    return {"response_model": answer, "responses": errors, "openapi_extra": {"requestBody": body}}
