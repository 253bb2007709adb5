"""Safe changes to a live lease table: planned by pure functions, shown, written conditionally, and watched until the owner acts."""
