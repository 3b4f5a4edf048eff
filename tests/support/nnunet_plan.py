"""Plans and preprocesses data sets in nnU-Net: `python nnunet_plan.py 901 902`. nnU-Net can only start from a file."""

import sys

if __name__ == "__main__":
    from nnunetv2.experiment_planning.plan_and_preprocess_api import extract_fingerprints, plan_experiments, preprocess

    numbers = [int(word) for word in sys.argv[1:]]
    extract_fingerprints(numbers, num_processes=1, check_dataset_integrity=True, verbose=False)
    plans = plan_experiments(numbers)
    preprocess(numbers, plans, configurations=["3d_fullres"], num_processes=[1], verbose=False)
