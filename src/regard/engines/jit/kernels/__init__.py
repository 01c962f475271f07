"""The kernels: loop nests, and the parts that they are made of.

forward          attention                                backward         its gradients
statistics_rows  what is asked of a row's weights         statistics_keys  what is asked of a key's

tile       rows in memory, lanes in registers             panels    keys and values in the form of the products
products   the two matrix products                        softmax   the running softmax
rules      mask and score on lanes                        dropout   which weights fall out
staging    rows in and out of a backward pass             multiply  its matrix product
pullback   its part between the products                  turns     who may add when
visitors   a plan seen from the keys                      sweep     what passes over scores share
tasks      what threads take from one counter
"""
