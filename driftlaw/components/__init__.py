"""Building blocks of methods: losses, Fisher information, layer rates, BatchNorm statistics, augmentation, teachers."""
