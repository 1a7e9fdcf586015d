"""What training runs learn of other processes through files: requests of users, other players, other members."""
