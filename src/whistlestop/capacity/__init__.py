"""Pure policy: what runs next and where. Used by the scheduler and by the simulator alike."""
