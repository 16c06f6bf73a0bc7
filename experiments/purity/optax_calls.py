"""Functions of optax: losses, schedules, projections, trees, transformations. All of them pure."""

from experiments.purity.calls import Call

IMPORTS = "import optax"

_LOSSES = (
    Call("optax.l2_loss", "x, y"),
    Call("optax.squared_error", "x, y"),
    Call("optax.huber_loss", "x, y, delta=0.5"),
    Call("optax.log_cosh", "x, y"),
    Call("optax.cosine_similarity", "x, y"),
    Call("optax.cosine_distance", "x, y"),
    Call("optax.hinge_loss", "x, signs"),
    Call("optax.sigmoid_binary_cross_entropy", "x, zeros_and_ones"),
    Call("optax.softmax_cross_entropy", "logits, one_hot"),
    Call("optax.safe_softmax_cross_entropy", "logits, one_hot"),
    Call("optax.softmax_cross_entropy_with_integer_labels", "logits, labels"),
    Call("optax.smooth_labels", "one_hot, 0.1"),
    Call("optax.kl_divergence", "p, q"),
    Call("optax.losses.kl_divergence_with_log_targets", "p, x"),
    Call("optax.losses.perceptron_loss", "x, signs"),
    Call("optax.losses.sparsemax_loss", "x, zeros_and_ones"),
    Call("optax.losses.multiclass_hinge_loss", "logits, labels"),
    Call("optax.losses.multiclass_perceptron_loss", "logits, labels"),
    Call("optax.losses.poly_loss_cross_entropy", "logits, one_hot"),
    Call("optax.losses.ranking_softmax_loss", "x, p"),
    Call("optax.losses.triplet_margin_loss", "x, y, p"),
    Call("optax.losses.binary_dice_loss", "x, zeros_and_ones"),
)

_SCHEDULES = (
    Call("optax.constant_schedule", "0.1", "(count)"),
    Call("optax.linear_schedule", "1.0, 0.0, 10", "(count)"),
    Call("optax.polynomial_schedule", "1.0, 0.0, 2, 10", "(count)"),
    Call("optax.exponential_decay", "1.0, 5, 0.5", "(count)"),
    Call("optax.cosine_decay_schedule", "1.0, 10", "(count)"),
    Call("optax.warmup_constant_schedule", "0.0, 1.0, 5", "(count)"),
    Call("optax.warmup_cosine_decay_schedule", "0.0, 1.0, 2, 10", "(count)"),
    Call("optax.piecewise_constant_schedule", "1.0, {2: 0.5, 8: 0.1}", "(count)"),
    Call("optax.join_schedules", "[lambda step: 0.1 * step, lambda step: 1.0], [5]", "(count)"),
)

_PROJECTIONS = (
    Call("optax.projections.projection_non_negative", "params"),
    Call("optax.projections.projection_box", "x, -1.0, 1.0"),
    Call("optax.projections.projection_hypercube", "x"),
    Call("optax.projections.projection_l1_ball", "x"),
    Call("optax.projections.projection_l2_ball", "params"),
    Call("optax.projections.projection_l2_sphere", "params"),
    Call("optax.projections.projection_linf_ball", "x"),
    Call("optax.projections.projection_hyperplane", "x, y, 1.0"),
    Call("optax.projections.projection_halfspace", "x, y, 1.0"),
)

_TREES = (
    Call("optax.tree.add", "params, grads"),
    Call("optax.tree.sub", "params, grads"),
    Call("optax.tree.mul", "params, grads"),
    Call("optax.tree.div", "params, grads"),
    Call("optax.tree.scale", "scalar, grads"),
    Call("optax.tree.add_scale", "params, scalar, grads"),
    Call("optax.tree.vdot", "params, grads"),
    Call("optax.tree.sum", "params"),
    Call("optax.tree.max", "params"),
    Call("optax.tree.norm", "params"),
    Call("optax.tree.clip", "params, -1.0, 1.0"),
    Call("optax.tree.zeros_like", "params"),
    Call("optax.tree.random_like", "key, params"),
    Call("optax.tree.update_moment", "grads, params, 0.9, 2"),
    Call("optax.tree.bias_correction", "params, 0.9, count"),
)

_UPDATES = (
    Call("optax.apply_updates", "params, grads"),
    Call("optax.incremental_update", "params, grads, 0.1"),
    Call("optax.periodic_update", "params, grads, count, 3"),
    Call("optax.safe_norm", "x, 1e-3"),
    Call("optax.safe_increment", "count"),
    Call("optax.scale_gradient", "params, 0.5"),
)

_TRANSFORMATIONS = (
    Call("optax.sgd", "0.1", ".update(grads, optax.sgd(0.1).init(params))"),
    Call("optax.zero_nans", "", ".update(grads, optax.zero_nans().init(params))"),
    Call("optax.adam", "0.1", ".init(params)"),
)

CALLS = (*_LOSSES, *_SCHEDULES, *_PROJECTIONS, *_TREES, *_UPDATES, *_TRANSFORMATIONS)
