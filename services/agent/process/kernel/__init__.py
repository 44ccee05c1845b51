"""What Linux offers for processes: identities, control groups, start under an account, search and kill."""
