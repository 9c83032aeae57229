"""A model behind a plain FastAPI handler, without batching, limits or adaptation, for ``serve-speed``."""

from __future__ import annotations

import argparse
import socket
import sys

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

import driftlaw
from benchmarks.reliability.serving import MODEL_PATH


def main() -> None:
    """Serve the embedded network on a free port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    model, app = driftlaw.load_model("wrn_16_1-cifar10").to(device), FastAPI()

    def predict(pixels: np.ndarray) -> list[float]:
        with torch.inference_mode():
            logits = model(torch.from_numpy(pixels).to(device).float() / 255)
        return logits.flatten().tolist()

    async def infer(request: Request) -> dict[str, list[float]]:
        start = int(request.headers["Inference-Header-Content-Length"])
        pixels = np.frombuffer(bytearray((await request.body())[start:]), np.uint8).reshape(-1, 3, 32, 32)
        return {"logits": await run_in_threadpool(predict, pixels)}

    app.add_api_route(MODEL_PATH, infer, methods=["POST"])
    bound = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([bound])


if __name__ == "__main__":
    main()
