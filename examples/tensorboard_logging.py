"""Write label-free diagnostics of every step to TensorBoard; then run `tensorboard --logdir logs`."""

import driftlaw
from driftlaw.callbacks import TensorBoardWriter

adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"))
writer = TensorBoardWriter("logs")
adapter.add_callback(writer)
for batch in driftlaw.make_stream("embedded", corruptions=["fog", "snow"], batch_size=50, limit=200):
    adapter(batch.images)
writer.close()
print(adapter.summary())
