"""In what the search as it was run differs from the package. These lines stand in its result file."""

STEPS = (  # mended by exact_steps
    "A class row moves along its whole gradient and is then scaled back to length 1; the package first "
    "takes away the part along the row. With FedAwS and FedALC a row's step is therefore "
    "1 + 2 row_lr (margin - s) s times shorter, s the cosine of the row with its examples' embeddings: "
    "shorter where s is positive, longer where it is not.",
    "Adam sees gradients that do not shrink with the clients' falling rate; with clients.lr_decay the "
    "package's do.",
)
OTHERS = (
    "FedSS adds up every client's gradient of a row and takes one step of Adam for the whole table; in "
    "the package clients move the row on the sphere, the mean over those who asked for it is merged, "
    "and Adam leaves rows alone that nobody asked for. The two agree where all classes are asked for, "
    "the merge is a sum and the clients' rate is small; at a clients' rate of 0.1 they do not.",
    "A batch is drawn with replacement; in the package without.",
    "If a spreadout step would raise the regulariser, a quarter of it is taken; the package halves it "
    "until it does not.",
    "share = 1 is the package's method.strength without limit; its default of 1 is a share of 0.99.",
    "Class counts and label sets are exact: nothing is refused, and rows of equal bytes stay two.",
    "P@k is over all validation rows; the package leaves out rows without a label (2 of delicious).",
    "tau is the best of a grid by P@1, on the validation part that P@k is then taken from; the package "
    "chooses it by the mean of P@1, P@3 and P@5.",
    "inputs = unit and layer_norm have no counterpart among the package's encoders.",
)
