"""HTTP server around adapters, its client, and predictions while images arrive. Imports nothing by itself."""
