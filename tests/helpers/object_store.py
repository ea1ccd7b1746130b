"""A server that speaks as Amazon S3 does, for tests: moto's, in this process."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

WHO = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
"""Credentials that it takes; without the last a client without any asks the machine's cloud for some."""


@dataclass
class ObjectStore:
    """A server with buckets of its own."""

    endpoint: str
    client: Any
    made: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {**WHO, "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": "us-east-1"}

    def bucket(self) -> "Bucket":
        """A new one."""
        name = f"bucket-{len(self.made)}"
        self.client.create_bucket(Bucket=name)
        self.made.append(name)
        return Bucket(self, name)


@dataclass
class Bucket:
    """One bucket, with what a test does to it behind a store's back."""

    server: ObjectStore
    name: str

    @property
    def address(self) -> str:
        return f"s3://{self.name}/some/study"

    def keys(self) -> list[str]:
        """Of all objects, without the marks that clients leave where a folder became empty."""
        listed = self.server.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return [one["Key"] for one in listed if not one["Key"].endswith("/")]

    def finished(self) -> int:
        """Shards of a study that are stored whole."""
        listed = self.keys()
        return sum(key.endswith("/shard.json") for key in listed)

    def files(self) -> dict[str, bytes]:
        """Everything below the address but leases, as in a folder."""
        names = [key.removeprefix("some/study/") for key in self.keys() if key.startswith("some/study/")]
        return {name: self.read(name) for name in names if not name.startswith("lease/")}

    def read(self, name: str) -> bytes:
        content: bytes = self.server.client.get_object(Bucket=self.name, Key=f"some/study/{name}")["Body"].read()
        return content

    def write(self, name: str, content: bytes) -> None:
        self.server.client.put_object(Bucket=self.name, Key=f"some/study/{name}", Body=content)

    def remove(self, name: str) -> None:
        self.server.client.delete_object(Bucket=self.name, Key=f"some/study/{name}")

    def leases(self) -> list[str]:
        """Names of leases that were not given back."""
        names = [key.removeprefix("some/study/") for key in self.keys() if key.startswith("some/study/lease/")]
        return [name for name in names if b'"released": true' not in self.read(name)]

    def age(self, seconds: float) -> None:
        """Everything that is there was put that much earlier, by the server's clock."""
        from moto.s3.models import s3_backends

        for backends in s3_backends.values():
            for backend in backends.values():
                if self.name in backend.buckets:
                    for key in backend.buckets[self.name].keys.values():
                        key.last_modified -= timedelta(seconds=seconds)

    def deny(self, *actions: str) -> None:
        """From now on."""
        rule = {"Effect": "Deny", "Principal": "*", "Action": list(actions), "Resource": f"arn:aws:s3:::{self.name}/*"}
        self.server.client.put_bucket_policy(Bucket=self.name, Policy=json.dumps({"Statement": [rule]}))


@contextmanager
def served() -> Iterator[ObjectStore]:
    """The server, as long as the block lasts."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": WHO["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": WHO["AWS_SECRET_ACCESS_KEY"]}
    try:
        yield ObjectStore(endpoint, boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys))
    finally:
        with suppress(Exception):
            server.stop()
