"""LAW in a plain PyTorch loop: the embedded CNN on foggy images, with and without adaptation."""

import driftlaw

model = driftlaw.load_model("wrn_16_1-cifar10")  # any nn.Module that maps images to logits
adapter = driftlaw.adapt(model)  # LAW, on a copy of the model
wrong = {"no adaptation": 0, "LAW": 0}
for batch in driftlaw.make_stream("embedded", corruptions="fog", batch_size=100, limit=400):
    wrong["no adaptation"] += int((model(batch.images).argmax(1) != batch.labels).sum())
    wrong["LAW"] += int((adapter(batch.images).argmax(1) != batch.labels).sum())  # predicts, then updates
for name, count in wrong.items():
    print(f"{name}: {100 * count / 400:.1f} % wrong in fog")
