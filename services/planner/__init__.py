"""Decides which jobs run where: when to plan, the policies, and the integer program that they solve."""
