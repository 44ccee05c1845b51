"""What a plan costs: views and problems of any size, solved by every back end and policy."""
