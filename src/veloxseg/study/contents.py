"""What the paper shows, and the command that makes it here: every table and figure, in the paper's order."""

from dataclasses import dataclass

__all__ = ["CONTENTS", "Entry"]


@dataclass(frozen=True)
class Entry:
    place: str  # table or figure, with its label in the paper's source
    what: str
    command: str


CONTENTS = (
    Entry(
        "Figure 1 (fig:dice_thr)",
        "Dice against throughput and against parameters, families marked",
        "veloxseg study peers PREPARED -o STUDY; veloxseg benchmark --dice STUDY --plot DIR",
    ),
    Entry("Figure 2 (fig:overview)", "the architecture", "veloxseg info; docs/method.md, docs/images/architecture.svg"),
    Entry(
        "Figure 3 (fig:method_pwa), fig:detail_pwa, algorithm:pwa",
        "paired window attention",
        "veloxseg inspect attention -m RUN PREPARED -o OUT; docs/method.md, model/pwa.py",
    ),
    Entry(
        "Figure 4 (fig:method_jlc)",
        "what depth-wise and JL-guided convolution do to distances",
        "veloxseg inspect distances -m RUN PREPARED -o OUT",
    ),
    Entry(
        "tab:pet/ct_segmentation_performance",
        "Dice, HD95, precision, recall beside 16 peers on PET/CT",
        "veloxseg study peers PREPARED -o STUDY",
    ),
    Entry(
        "tab:pet/ct_segmentation_performance, SAM-Med3D",
        "zero-shot by clicks from the label, CT or PET",
        "veloxseg prompt CASES -w WEIGHTS -o MASKS --modality pet; "
        "veloxseg evaluate -p sam-med3d=MASKS -l CASES -o REPORT",
    ),
    Entry(
        "tab:pet/ct_segmentation_performance, DINOv3-L",
        "a frozen 2-D backbone on slices, a linear head",
        "veloxseg train PREPARED -o RUN --model dinov3-l --init WEIGHTS",
    ),
    Entry("tab:module_ablation", "module ablation", "veloxseg study modules PREPARED -o STUDY"),
    Entry(
        "fig:attention_distance",
        "mean attention distance by stage and window",
        "veloxseg inspect attention -m RUN PREPARED -o OUT",
    ),
    Entry(
        "fig:tsne_feature_visualization",
        "decoded features and t-SNE, with and without attention",
        "veloxseg inspect features -m RUN -m RUN2 PREPARED -o OUT",
    ),
    Entry(
        "tab:jl_conv_vs_prune",
        "JLC against ℓ2 pruning, external test",
        "veloxseg study pruning PREPARED -o STUDY --external CASES",
    ),
    Entry(
        "fig:dice_groupsize", "group sizes by the JL rule against equal ones", "veloxseg study groups PREPARED -o STUDY"
    ),
    Entry(
        "fig:tsne_depth_jl",
        "t-SNE of depth-wise and JL-guided convolution",
        "veloxseg inspect features -m DEPTHWISE -m JLC PREPARED -o OUT",
    ),
    Entry(
        "tab:dice_multitask_loss", "knowledge transfer by different losses", "veloxseg study transfer PREPARED -o STUDY"
    ),
    Entry(
        "fig:dice_tumorsize",
        "Dice by lesion volume",
        "veloxseg study transfer PREPARED -o STUDY --rows gram none no-teachers",
    ),
    Entry(
        "tab:datasets_summary", "the four data sets as published", "veloxseg prepare CASES -o PREPARED --as autopet2"
    ),
    Entry(
        "tab:autopetii_hecktor2022_computation_performance",
        "parameters, MACs and throughput on AutoPET-II and HECKTOR 2022",
        "veloxseg benchmark --task autopet2 --count-only; veloxseg benchmark --task hecktor2022 --count-only",
    ),
    Entry(
        "tab:brats2021_computation_performance",
        "parameters, MACs and throughput on BraTS 2021",
        "veloxseg benchmark --task brats2021 --count-only",
    ),
    Entry(
        "tab:peak_reserved_summary, fig:gpu_memory_usage",
        "peak memory of training and inference",
        "veloxseg benchmark --task autopet2 --training --device cuda --plot DIR",
    ),
    Entry("tab:nnunet_vs_nnveloxseg", "VeloxSeg in nnU-Net's framework", "veloxseg nnunet train DATASET 3d_fullres 0"),
    Entry(
        "fig:Prediction",
        "3-D surfaces, methods × cases",
        "veloxseg evaluate -p A -p B -l CASES -o REPORT --cases NAME NAME",
    ),
    Entry(
        "tab:mri_segmentation_performance",
        "Dice and HD95 of ET, TC, WT on BraTS 2021",
        "veloxseg prepare CASES -o PREPARED --as brats2021; veloxseg study peers PREPARED -o STUDY",
    ),
    Entry("tab:prune", "widths of feed-forward layers after pruning", "veloxseg study ffn PREPARED -o STUDY"),
    Entry(
        "tab:multitask_losw_seight_ablation",
        "weights of reconstruction and transfer",
        "veloxseg study loss-weights PREPARED -o STUDY",
    ),
    Entry("tab:modality_ablation", "modalities and how they are fused", "veloxseg study modalities PREPARED -o STUDY"),
    Entry("tab:jl_generalization", "depth-wise, JL-guided, full convolution", "veloxseg study jl PREPARED -o STUDY"),
    Entry("tab:pwa_comparison", "attention mechanisms", "veloxseg study attention PREPARED -o STUDY"),
    Entry("tab:sdkt_memory_usage", "cost of knowledge transfer", "veloxseg study transfer PREPARED -o STUDY"),
    Entry("tab:scaling_law_of_veloxseg", "scaling law", "veloxseg study scaling PREPARED -o STUDY"),
)
