"""Serving: predictions while images arrive, with adapters that continue after a restart. Imports nothing by itself."""
