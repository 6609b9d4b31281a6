"""The Flower client of both workloads: a module of its own, so that Ray finds it by name."""

from __future__ import annotations

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers.work import Data, model_of

app = ClientApp()


@functools.cache
def held(work: str) -> Data:
    torch.set_num_threads(1)
    return Data(work)


@app.train()
def train(message: Message, context: Context) -> Message:
    told, arrays = message.content.config_records["config"], message.content.array_records["arrays"]
    work, client = str(told["work"]), int(str(told["client"]))
    data, model = held(work), model_of(work)
    model.load_state_dict(arrays.to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=model.rate)
    for batch in data.batches(client):
        optimizer.zero_grad()
        model.loss(*batch).backward()
        optimizer.step()
    said = MetricRecord({"num-examples": data.examples(client), "client": client})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": said})
    return Message(content=content, reply_to=message)
