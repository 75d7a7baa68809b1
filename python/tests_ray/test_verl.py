"""verl's manager and workers with the checkpoint engine: two ranks of FSDP2, two rollout workers."""

from pathlib import Path

import pytest
import ray
import torch

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("one_node")]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """verl's own, for a tiny model."""
    import verl
    from hydra import compose, initialize_config_dir
    from transformers import Qwen2Config, Qwen2ForCausalLM

    path = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "vocab_size": 128, "tie_word_embeddings": False}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, max_position_embeddings=64)).save_pretrained(path)
    of, engine = "actor_rollout_ref", "actor_rollout_ref.rollout.checkpoint_engine"
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        composed = compose(
            "ppo_trainer",
            overrides=[
                # What the guide tells users to set.
                f"{engine}.backend=weightcast",
                f"+{engine}.custom_backend_module=weightcast.adapters.verl",
                f"+{engine}.engine_kwargs.weightcast.model=verl",
                f"{engine}.update_weights_bucket_megabytes=1",
                f"{of}.model.path={path}",
                f"+{of}.model.load_tokenizer=false",
                f"{of}.model.use_remove_padding=false",
                f"{of}.model.enable_gradient_checkpointing=false",
                f"+{of}.model.override_config.attn_implementation=eager",
                f"{of}.actor.strategy=fsdp2",
                f"{of}.actor.ppo_micro_batch_size_per_gpu=1",
                f"{of}.rollout.name=vllm",
                f"{of}.rollout.log_prob_micro_batch_size_per_gpu=1",
            ],
        )
    return composed.actor_rollout_ref


def group(kind: type, **arguments):
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(ray.remote(kind), **arguments)
    return RayWorkerGroup(pool, made, device_name="cpu", use_gpu=False)


def test_rollout_workers_hold_what_the_trainer_has_after_each_step(config):
    from verl.checkpoint_engine import CheckpointEngineManager
    from verl.utils.config import omega_conf_to_dataclass

    from .verl_workers import Actor, Replica, Rollout

    actors = group(Actor, config=config, role="actor")
    actors.init_model()
    settings = omega_conf_to_dataclass(config.rollout)
    rollouts = group(Rollout, rollout_config=settings, model_config=omega_conf_to_dataclass(config.model))
    first, second = (Replica([worker]) for worker in rollouts.workers)
    manager = CheckpointEngineManager(settings.checkpoint_engine, actors, [first])

    before = {}
    for step in (1, 2, 3):
        if step == 2:
            # verl's way of adding rollouts while a job runs.
            manager.add_replicas([second])
        assert manager.update_weights(global_steps=10 * step) == {"weightcast/version": float(step)}
        full, _ = actors.full()
        assert len(full) == 27 and not any(torch.equal(full[name], before[name]) for name in before)
        for replica, steps in [(first, [10, 20, 30][:step]), (second, [20, 30][: step - 1])]:
            given, told = ray.get(replica.workers[0].given.remote())
            assert told == steps
            if told:
                assert given.keys() == full.keys()
                assert all(torch.equal(given[name], full[name]) for name in full)
        before = full
        actors.step()
    assert first.asked[:2] == ["abort_all_requests", "release_kv_cache"]
    for worker in [*actors.workers, *rollouts.workers]:
        ray.kill(worker)
