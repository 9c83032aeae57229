"""What things cost, measured beside a plain reference in one run."""
