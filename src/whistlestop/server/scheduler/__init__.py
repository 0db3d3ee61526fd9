"""The reconciler: load, decide (pure), act with no transaction open, apply guarded. Any crash heals next pass."""
