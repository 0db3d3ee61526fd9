"""What the SDK does for a framework. Each module needs that framework, and is imported by its users alone."""
