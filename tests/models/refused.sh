# What a model's file or text says wrong is said in words: hyperparameters that do not fit together, tensors of other shapes, graphs that
# index outside what they have. tests/models/refused.py makes the models and knows what is to be said. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
python3 tests/models/refused.py "$LUMEN" "$TEST_TMP" || n_bad=1
finish
