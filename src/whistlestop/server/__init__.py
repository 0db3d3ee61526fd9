"""The control plane: API and scheduler over services over the store."""
