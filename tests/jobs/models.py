"""Loads a job through the models of those who define it; any difference is an error.

models.py pai              CreateJob's body, as JSON
models.py kubernetes       a manifest, as YAML: its pods, and a PyTorchJob as a whole
models.py yaml             YAML → JSON, as a reader of YAML 1.1 sees it
"""

import json
import sys
import typing

import yaml


def without_empty_lists(value):
    """The models write a list for every list that they know."""
    if isinstance(value, dict):
        return {key: without_empty_lists(item) for key, item in value.items() if item != []}
    if isinstance(value, list):
        return [without_empty_lists(item) for item in value]
    return value


def check_types(model):
    """The models take any value at run time, and say in their annotations what it is to be."""
    for name, hint in typing.get_type_hints(type(model).__init__).items():
        value = getattr(model, name, None)
        if value is None or value == []:
            continue
        origin = typing.get_origin(hint) or hint
        assert isinstance(value, origin), f"{type(model).__name__}.{name}: {value!r} is no {hint}"
        if isinstance(value, dict):
            kinds = typing.get_args(hint)
            for entry in value.items():
                assert all(isinstance(part, kind) for part, kind in zip(entry, kinds)), f"{name}: {entry}"
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "from_map"):
                check_types(item)


def check_pai(text):
    from alibabacloud_pai_dlc20201203.models import CreateJobRequest

    body = json.loads(text)
    request = CreateJobRequest().from_map(body)
    request.validate()
    check_types(request)
    back = without_empty_lists(request.to_map())
    assert back == body, f"the models make this of it: {back}"


class Response:
    """What the client deserialises."""

    def __init__(self, data):
        self.data = json.dumps(data)


def with_text_amounts(value):
    """Amounts of resources may be numbers, and are texts in the models."""
    if isinstance(value, dict):
        texts = {key: str(item) for key, item in value.get("limits", {}).items()}
        rest = {key: with_text_amounts(item) for key, item in value.items()}
        return {**rest, "limits": texts} if texts else rest
    if isinstance(value, list):
        return [with_text_amounts(item) for item in value]
    return value


def check_kubernetes(text):
    import kubernetes_validate

    manifest = yaml.safe_load(text)
    replicas = next(value for key, value in manifest["spec"].items() if key.endswith("ReplicaSpecs"))
    for replica in replicas.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": replica["template"]["spec"]}
        kubernetes_validate.validate(pod, "1.37", strict=True)
    if manifest["kind"] == "PyTorchJob":
        from kubeflow.training import ApiClient

        client = ApiClient()
        job = client.deserialize(Response(manifest), "KubeflowOrgV1PyTorchJob")
        back = client.sanitize_for_serialization(job)
        assert back == with_text_amounts(manifest), f"the models make this of it: {back}"


def main():
    text = sys.stdin.read()
    match sys.argv[1]:
        case "pai":
            check_pai(text)
        case "kubernetes":
            check_kubernetes(text)
        case "yaml":
            json.dump(yaml.safe_load(text), sys.stdout)
        case other:
            sys.exit(f"no such check: {other}")


main()
