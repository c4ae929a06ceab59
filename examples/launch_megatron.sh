#!/bin/bash
# Llama 3 70B on 16 nodes, as people keep it: what `plimsoll import` reads.
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=16
GPUS_PER_NODE=8

MODEL_ARGS=(
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672
    --num-attention-heads 64 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --normalization RMSNorm --swiglu
    --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0 --vocab-size 128256
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 256 --bf16
    --lr 3e-4 --train-iters 100000 --use-flash-attn
    --no-create-attention-mask-in-dataloader
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 8 --sequence-parallel
    --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 5
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} ${PARALLEL_ARGS[@]} 2>&1 | tee train.log
