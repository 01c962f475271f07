"""What every room may use: how a refusal is worded, how arrays are read, results kept from call to call, observers of calls."""
