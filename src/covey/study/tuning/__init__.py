"""Equal-budget search for hyper-parameters, on validation only: `covey tune`."""
