"""What more than one service needs: `domain` is pure, `runtime` is the only shared code with I/O."""
