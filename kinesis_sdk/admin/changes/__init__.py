"""Safe changes of a live lease table: planned purely, shown, written on condition, and watched until the owner acts."""
