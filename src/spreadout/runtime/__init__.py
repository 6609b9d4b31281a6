"""Where clients train: one after another, side by side, on several processes."""

from spreadout.federated.executor import EXECUTORS, register_executor
from spreadout.runtime.private_retrieval import PrivateRetrieval
from spreadout.runtime.sequential import Sequential
from spreadout.runtime.simulator.executor import Simulator

__all__ = ["EXECUTORS", "PrivateRetrieval", "Sequential", "Simulator", "register_executor"]
