"""What methods are made of: which parameters learn, losses, Fisher scores, layer rates, augmentation."""
