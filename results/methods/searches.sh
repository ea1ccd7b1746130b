#!/bin/sh
# The comparisons behind the rows of searches and learned methods, side by side on one GPU.
# Usage: sh results/methods/searches.sh DATA OUT   (DATA: the official files; about three minutes on 16 cores and an H200)
set -u
data=$1 out=$2
mkdir -p "$out"

run() { # MODEL NAME ARGUMENTS...
    model=$1 name=$2
    shift 2
    OMP_NUM_THREADS=1 timeout "${LIMIT:-600}" python3 -m unmask.cli compare --model "$model" --device cuda \
        --model-option engine=eager --split evaluation --prompts 100 --data-dir "$data" --jobs 1 --quiet \
        --out "$out/$model-$name" "$@" >"$out/$model-$name.log" 2>&1 &
}

for model in mini mini-dream; do
    for search in order-token-search lookum soar; do
        run "$model" "$search-gsm8k" --policy "$search" --matched --task gsm8k
        run "$model" "$search" --policy "$search" --matched --task constructed
        run "$model" "$search-other" --policy "$search" --matched --task humaneval --task json-mode-eval
    done
    run "$model" medal --policy medal --matched --task constructed
    run "$model" medal-official --policy medal --matched --task gsm8k --task humaneval --task json-mode-eval
    run "$model" learned --policy demask --policy ddpd --task constructed
    run "$model" learned-official --policy demask --policy ddpd --task gsm8k --task humaneval --task json-mode-eval
done
wait
