"""What each preset says that is not a default, written down once more from its source."""

RECIPES = {
    "awd_enwik8": {
        "embedding_size": 400, "hidden_size": 1840, "num_layers": 3, "layer_sizes": (1840, 1840,
        400), "tie_embeddings": True, "num_biases": 2, "init":
        "inverse_sqrt,embedding=uniform:0.1,output_bias=zeros", "input_dropout": 0.1,
        "layer_dropout": 0.1, "output_dropout": 0.4, "weight_dropout": 0.2, "valid_fraction": 0.05,
        "test_fraction": 0.05, "batch_size": 128, "bptt": 200, "random_bptt": True, "epochs": 50,
        "learning_rate": 0.001, "weight_decay": 1.2e-06, "clip": 0.25, "schedule": "step",
        "decay_rate": 0.1, "decay_at": (25, 35)},
    "awd_ptb": {
        "embedding_size": 400, "hidden_size": 1150, "num_layers": 3, "layer_sizes": (1150, 1150,
        400), "tie_embeddings": True, "num_biases": 2, "init":
        "inverse_sqrt,embedding=uniform:0.1,output_bias=zeros", "input_dropout": 0.4,
        "layer_dropout": 0.25, "output_dropout": 0.4, "embedding_dropout": 0.1, "weight_dropout":
        0.5, "activation_penalty": 2.0, "change_penalty": 1.0, "kind": "word", "symbols_in_text":
        True, "valid_fraction": 0.0, "batch_size": 20, "bptt": 70, "random_bptt": True, "epochs":
        500, "optimizer": "sgd", "learning_rate": 30.0, "weight_decay": 1.2e-06, "clip": 0.25,
        "schedule": "constant", "average": "polyak", "average_trigger": "nonmonotone"},
    "awd_ptb_char": {
        "embedding_size": 200, "hidden_size": 1000, "num_layers": 3, "layer_sizes": (1000, 1000,
        200), "tie_embeddings": True, "num_biases": 2, "init":
        "inverse_sqrt,embedding=uniform:0.1,output_bias=zeros", "input_dropout": 0.1,
        "layer_dropout": 0.25, "output_dropout": 0.1, "weight_dropout": 0.5, "kind": "word",
        "unknown": "", "valid_fraction": 0.0, "batch_size": 128, "bptt": 150, "random_bptt": True,
        "epochs": 500, "learning_rate": 0.002, "weight_decay": 1.2e-06, "clip": 0.25, "schedule":
        "step", "decay_rate": 0.1, "decay_at": (300, 400)},
    "awd_wikitext2": {
        "embedding_size": 400, "hidden_size": 1150, "num_layers": 3, "layer_sizes": (1150, 1150,
        400), "tie_embeddings": True, "num_biases": 2, "init":
        "inverse_sqrt,embedding=uniform:0.1,output_bias=zeros", "input_dropout": 0.65,
        "layer_dropout": 0.2, "output_dropout": 0.4, "embedding_dropout": 0.1, "weight_dropout":
        0.5, "activation_penalty": 2.0, "change_penalty": 1.0, "kind": "word", "symbols_in_text":
        True, "valid_fraction": 0.0, "batch_size": 80, "bptt": 70, "random_bptt": True, "epochs":
        750, "optimizer": "sgd", "learning_rate": 30.0, "weight_decay": 1.2e-06, "clip": 0.25,
        "schedule": "constant", "average": "polyak", "average_trigger": "nonmonotone"},
    "char_rnn": {
        "embedding_size": 0, "hidden_size": 128, "num_layers": 2, "num_biases": 2, "forget_bias":
        1.0, "init": "uniform:0.08", "valid_fraction": 0.05, "batch_size": 50, "bptt": 50, "epochs":
        50, "optimizer": "rmsprop", "learning_rate": 0.002, "loss": "sum", "clip": 0.0,
        "clip_elementwise": 5.0, "schedule": "step", "decay_rate": 0.97, "decay_start": 10},
    "mogrifier_enwik8": {
        "embedding_size": 1687, "hidden_size": 1687, "num_layers": 4, "connections": "sum", "cell":
        "mogrifier", "input_gate": "capped", "mogrifier_rank": 61, "forget_bias": 1.0,
        "input_dropout": 0.016, "layer_dropout": 0.138, "output_dropout": 0.288, "dropout_per_step":
        True, "state_dropout": 0.165, "valid_fraction": 0.05, "test_fraction": 0.05, "batch_size":
        128, "bptt": 500, "reset_rate": 0.01, "steps": 40000, "learning_rate": 0.002248,
        "adam_beta1": 0.0, "weight_decay": 4.409e-05, "weight_decay_first": True, "loss": "sum",
        "clip": 10.0, "schedule": "constant", "eval_every": 400, "average": "polyak",
        "average_trigger": "no_gain", "average_patience": 10, "average_latest": 80},
    "mogrifier_ptb": {
        "embedding_size": 912, "hidden_size": 912, "num_layers": 2, "connections": "sum", "cell":
        "mogrifier", "input_gate": "capped", "mogrifier_rank": 84, "tie_embeddings": True,
        "forget_bias": 1.0, "input_dropout": 0.729, "layer_dropout": 0.291, "output_dropout": 0.716,
        "dropout_per_step": True, "state_dropout": 0.387, "kind": "word", "symbols_in_text": True,
        "valid_fraction": 0.0, "batch_size": 64, "bptt": 70, "reset_rate": 0.01, "steps": 200000,
        "learning_rate": 0.0023, "adam_beta1": 0.0, "weight_decay": 0.00025235,
        "weight_decay_first": True, "loss": "sum", "clip": 10.0, "schedule": "constant",
        "eval_every": 200, "average": "polyak", "average_trigger": "no_gain", "average_patience":
        50, "average_latest": 800},
    "mogrifier_wikitext2": {
        "embedding_size": 272, "hidden_size": 1366, "num_layers": 2, "connections": "sum", "cell":
        "mogrifier", "input_gate": "capped", "mogrifier_rounds": 6, "mogrifier_rank": 48,
        "tie_embeddings": True, "head": "mixture", "mixture_dropout": 0.348, "forget_bias": 1.0,
        "input_dropout": 0.547, "layer_dropout": 0.199, "output_dropout": 0.348, "dropout_per_step":
        True, "state_dropout": 0.221, "kind": "word", "symbols_in_text": True, "valid_fraction":
        0.0, "batch_size": 64, "bptt": 70, "reset_rate": 0.01, "steps": 200000, "learning_rate":
        0.00328779, "adam_beta1": 0.0, "weight_decay": 0.00018995, "weight_decay_first": True,
        "loss": "sum", "clip": 10.0, "schedule": "constant", "eval_every": 200, "average": "polyak",
        "average_trigger": "no_gain", "average_patience": 50, "average_latest": 800},
    "pytorch_example": {
        "embedding_size": 200, "hidden_size": 200, "num_layers": 2, "num_biases": 2, "init":
        "inverse_sqrt,embedding=uniform:0.1,output=uniform:0.1,output_bias=zeros", "input_dropout":
        0.2, "layer_dropout": 0.2, "output_dropout": 0.2, "dropout_per_step": True, "kind": "word",
        "symbols_in_text": True, "valid_fraction": 0.0, "batch_size": 20, "bptt": 35, "epochs": 40,
        "optimizer": "sgd", "learning_rate": 20.0, "clip": 0.25, "schedule": "plateau",
        "decay_rate": 0.25},
    "torch_rnn": {
        "embedding_size": 64, "hidden_size": 128, "num_layers": 2, "forget_bias": 1.0, "init":
        "normal_fan,bias=zeros,embedding=normal:1,output=inverse_sqrt,output_bias=inverse_sqrt",
        "test_fraction": 0.1, "batch_size": 50, "bptt": 50, "steps": 17800, "learning_rate": 0.002,
        "clip": 0.0, "clip_elementwise": 5.0, "schedule": "step", "decay_start": 4, "decay_every":
        5, "eval_every": 1000, "seed": 2},
    "zaremba_large": {
        "embedding_size": 1500, "hidden_size": 1500, "num_layers": 2, "init": "uniform:0.04",
        "input_dropout": 0.65, "layer_dropout": 0.65, "output_dropout": 0.65, "dropout_per_step":
        True, "kind": "word", "symbols_in_text": True, "valid_fraction": 0.0, "batch_size": 20,
        "bptt": 35, "epochs": 55, "optimizer": "sgd", "learning_rate": 1.0, "loss": "sum", "clip":
        10.0, "schedule": "step", "decay_rate": 0.8695652173913043, "decay_start": 14},
    "zaremba_medium": {
        "embedding_size": 650, "hidden_size": 650, "num_layers": 2, "init": "uniform:0.05",
        "input_dropout": 0.5, "layer_dropout": 0.5, "output_dropout": 0.5, "dropout_per_step": True,
        "kind": "word", "symbols_in_text": True, "valid_fraction": 0.0, "batch_size": 20, "bptt":
        35, "epochs": 39, "optimizer": "sgd", "learning_rate": 1.0, "loss": "sum", "clip": 5.0,
        "schedule": "step", "decay_rate": 0.8, "decay_start": 6},
    "zaremba_small": {
        "embedding_size": 200, "hidden_size": 200, "num_layers": 2, "init": "uniform:0.1",
        "dropout_per_step": True, "kind": "word", "symbols_in_text": True, "valid_fraction": 0.0,
        "batch_size": 20, "bptt": 20, "epochs": 13, "optimizer": "sgd", "learning_rate": 1.0,
        "loss": "sum", "clip": 5.0, "schedule": "step", "decay_start": 4},
}
