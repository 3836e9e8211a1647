"""One append, step by step (`appends.Appends`): looked at, given offsets and times, written; what it says when it comes back."""
