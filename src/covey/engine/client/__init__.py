"""The client side: what a device does when it is asked, written once over a cohort dimension."""
