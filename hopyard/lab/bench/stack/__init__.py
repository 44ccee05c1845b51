"""What a running stack does: facts and jobs a second, latency, the time until a killed service is back."""
