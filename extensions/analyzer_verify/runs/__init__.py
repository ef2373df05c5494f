"""Everything that touches a GPU: jobs in processes of their own, and what they observe."""
