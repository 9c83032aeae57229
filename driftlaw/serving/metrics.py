"""Metrics of the server in the format of Prometheus."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from driftlaw.serving.model_server import ModelServer
from driftlaw.serving.status import BatchInfo

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters and histograms of requests and batches, and the state of the adapters when they are read.

    Args:
        server: the model server.
    """

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.registry = registry = CollectorRegistry()
        seconds: dict[str, Any] = {"buckets": SECONDS, "registry": registry}
        self.requests = Counter("driftlaw_requests", "Answers.", ["route", "code"], registry=registry)
        self.request_seconds = Histogram("driftlaw_request_seconds", "Time to an answer.", ["route"], **seconds)
        self.images = Counter("driftlaw_images", "Images that were predicted.", registry=registry)
        self.batch_images = Histogram("driftlaw_batch_images", "Images per batch.", buckets=SIZES, registry=registry)
        self.batch_seconds = Histogram("driftlaw_batch_seconds", "Time of a prediction and its update.", **seconds)
        self.registry.register(self)  # it has a method collect
        for batcher in server.batchers.values():
            batcher.on_batch = self.observe_batch

    def observe_batch(self, batch: BatchInfo, seconds: float) -> None:
        """Count a batch."""
        self.images.inc(batch.images)
        self.batch_images.observe(batch.images)
        self.batch_seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield the state of the adapters."""
        queue = GaugeMetricFamily("driftlaw_queue_requests", "Requests in progress.", labels=["tenant"])
        for tenant in self.server.settings.tenants or ("",):
            queue.add_metric([tenant], self.server.pending[tenant])
        yield queue
        steps = GaugeMetricFamily("driftlaw_steps", "Steps since the last reset.", labels=["adapter"])
        modes = GaugeMetricFamily("driftlaw_mode", "1 for the mode of the adapter.", labels=["adapter", "mode"])
        entropy = GaugeMetricFamily("driftlaw_entropy", "Mean entropy of the last batch, nats.", labels=["adapter"])
        scale = GaugeMetricFamily("driftlaw_guard_scale", "Factor of updates; below 1: alarm.", labels=["adapter"])
        events = CounterMetricFamily("driftlaw_guard_events", "Actions of the guard.", labels=["adapter", "action"])
        for name, batcher in self.server.batchers.items():
            steps.add_metric([name], batcher.steps)
            modes.add_metric([name, batcher.mode], 1)
            if batcher.batches and (last := batcher.batches[-1].entropy) is not None:
                entropy.add_metric([name], last)
            if (guard := batcher.adapter.guard) is not None:
                scale.add_metric([name], guard.scale)
                for action, count in list(guard.counts.items()):
                    events.add_metric([name, action], count)
        yield from (steps, modes, entropy, scale, events)

    def text(self) -> bytes:
        """Return all metrics as text."""
        text: bytes = generate_latest(self.registry)
        return text
