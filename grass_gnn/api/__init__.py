"""The Python API: fit, predict, fine-tune, cross-validate, calibrate, tune, export."""

from grass_gnn._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "calibration": ("calibrate",),
        "cross_validation": ("CrossValidation", "cross_validate"),
        "embedding": ("embed_table",),
        "explanation": ("explain_table",),
        "export": ("batch_tensors", "export_model", "plain_tensors"),
        "finetuning": ("Pretrained", "finetune", "finetune_table"),
        "fitting": ("EXAMPLE", "EXAMPLE_TARGET", "fit", "fit_table"),
        "graph_task": ("GraphSpec",),
        "graphs": ("from_networkx", "read_graph", "read_graphs"),
        "links": ("fit_links", "link_question", "predict_links"),
        "options": ("PredictOptions", "SearchOptions"),
        "pretraining": ("PretrainingSpec", "pretrain"),
        "prediction": ("PredictionSummary", "predict_table"),
        "tuning": ("TuneResult", "tune"),
    },
    extras={"estimators": ("GRASSClassifier", "GRASSRegressor")},  # need scikit-learn
)
