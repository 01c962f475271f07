"""The kernels, which are loop nests.

forward          attention                                backward         its gradients
statistics_rows  what is asked of a row's weights         statistics_keys  what is asked of a key's
score_sweep      what passes over the scores share        parts/           what kernels are put together from
"""
