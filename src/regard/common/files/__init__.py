"""Files. tensors: arrays in safetensors files; strict_json: validated JSON; output: what a command may write."""
